"""End-to-end tests drive the installed command, as a user does, on real tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.command import Job, job_writer


@pytest.fixture
def job_file(tmp_path: Path) -> Callable[..., Job]:
    """Writes jobs whose store is a folder of the test."""
    return job_writer(tmp_path, store=f"file://{tmp_path}/store")
