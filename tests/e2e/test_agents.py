"""Every preset resolves a task of the demonstration, in its own format of calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.command import Job, job_writer, printed_json, swe_rollout
from e2e.records import check, committed, read
from swe_rollout.spec.agent import PRESETS


@pytest.fixture(scope="module")
def resolving(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The patch of an episode that was graded as resolved."""
    folder = tmp_path_factory.mktemp("graded")
    job = job_writer(folder, store=f"file://{folder}/store")(scenarios=["gold"])
    assert printed_json(swe_rollout("run", str(job.path), "-o", "json"))["resolved"] == 1
    (record,) = map(read, committed(job.folder))
    patch: str = record["patch"]
    return patch


@pytest.mark.parametrize("use", sorted(PRESETS))
def test_a_preset_writes_the_patch_that_resolves(
    use: str, job_file: Callable[..., Job], resolving: str
) -> None:
    job = job_file(scenarios=["gold", "garbage"], agent={"use": use}, grading={"enabled": False})

    state = printed_json(swe_rollout("run", str(job.path), "-o", "json"))

    assert state["stop_reasons"] == {"format_errors": 1, "submitted": 1}
    assert state["masked"] == 0
    for path in committed(job.folder):
        record = read(path)
        check(record)
        assert record["patch"] == (resolving if record["stop_reason"] == "submitted" else "")
