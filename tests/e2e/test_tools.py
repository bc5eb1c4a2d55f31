"""A job that names, describes and bounds its tools, run as a user does."""

from __future__ import annotations

from collections.abc import Callable

from e2e.command import Job, printed_json, swe_rollout
from e2e.records import check, committed, read

TOOLS = [
    {"use": "bash", "with": {"session": True}, "timeoutSeconds": 60},
    {"use": "str_replace_editor", "description": "Edit.", "with": {"check_syntax": True}},
    {"use": "calculator", "name": "calc", "outputBytes": 512},
    "submit",
    "coding",
]


def test_a_session_solves_what_single_commands_do(job_file: Callable[..., Job]) -> None:
    job = job_file(scenarios=["gold"], agent={"tools": TOOLS})

    state = printed_json(swe_rollout("run", str(job.path), "-o", "json"))
    assert (state["committed"], state["failures"]) == (1, {})
    record = read(committed(job.folder)[0])
    check(record)
    assert record["reward"] == 1.0
