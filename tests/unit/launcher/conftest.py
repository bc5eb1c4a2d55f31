"""A job file to start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.spec.template import template


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(template())
    return path
