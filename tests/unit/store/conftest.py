"""A store in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(f"file://{tmp_path}/runs")
