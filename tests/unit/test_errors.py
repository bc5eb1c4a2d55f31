"""Errors say what, where, why and how to fix it, also where only `str` is shown."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from swe_rollout import RolloutJob
from swe_rollout.errors import (
    DatasetError,
    PrerequisiteError,
    Problem,
    SpecError,
    SweRolloutError,
    UnreachableError,
    UsageError,
    gather_all,
)
from swe_rollout.huggingface import as_prerequisite_error


@pytest.mark.threat(point=21)
def test_a_spec_error_says_field_line_and_hint(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("apiVersion: swe-rollout.dev/v1alpha1\nkind: RolloutJob\nspec:\n  sampels: 4\n")

    with pytest.raises(SpecError) as caught:
        RolloutJob.from_yaml(path)

    lines = str(caught.value).splitlines()
    assert lines[0] == f"{path} is not a valid RolloutJob: 4 problems"
    assert f"  {path}:4: spec.sampels: no such field; did you mean `samples`?" in lines
    assert lines[-1].startswith("  fix: `swe-rollout explain spec`")


@pytest.mark.threat(point=21)
def test_many_problems_are_cut_after_the_first_ones() -> None:
    problems = [Problem(f"rows.jsonl:{line}", "image", "missing") for line in range(1, 1001)]
    text = str(DatasetError("1000 of 1000 rows can't be read", problems, fix="correct them"))
    assert "\n  rows.jsonl:1: image: missing\n" in text
    assert "… and 980 more" in text
    assert text.endswith("\n  fix: correct them")
    assert len(text.splitlines()) == 23


def test_other_errors_stay_on_one_line() -> None:
    assert str(UsageError("no", why="because", fix="do")) == "no: because"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("no such model"), PrerequisiteError),
        (FileNotFoundError(2, "no such file"), PrerequisiteError),
        (PermissionError(13, "denied"), PrerequisiteError),
        (MemoryError(), UnreachableError),
        (OSError(errno.EIO, "input/output error"), UnreachableError),
        (OSError(errno.ESTALE, "stale file handle"), UnreachableError),
        (ConnectionResetError(), UnreachableError),
        (RuntimeError("we couldn't connect"), UnreachableError),
    ],
    ids=repr,
)
def test_what_may_pass_while_files_are_read_is_no_lack(
    error: Exception, kind: type[SweRolloutError]
) -> None:
    if isinstance(error, RuntimeError):
        error.__context__ = ConnectionRefusedError()
    with (
        pytest.raises(kind, match="no tokenizer"),
        as_prerequisite_error("no tokenizer", fix="x"),
    ):
        raise error


async def test_what_breaks_while_the_others_stop_is_logged_and_does_not_hide_the_first() -> None:
    async def unreachable() -> None:
        cause = OSError(errno.ECONNREFUSED, "refused")
        raise UnreachableError("no cluster", why=str(cause)) from cause

    async def broken_cleanup() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("while stopping")

    with capture_logs() as logs, pytest.raises(UnreachableError) as caught:
        await gather_all([broken_cleanup(), unreachable()])

    assert isinstance(caught.value.__cause__, OSError)
    [entry] = logs
    assert entry["event"] == "failed_while_stopping"
    assert "while stopping" in repr(entry["exc_info"])
