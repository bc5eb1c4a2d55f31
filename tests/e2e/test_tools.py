"""A job that names, describes and bounds its tools, run as a user does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        (["bash", {"use": "execute_bash", "name": "bash"}], "two tools named bash"),
        ([{"use": "coding", "name": "x"}], "one name or description for all of its tools"),
        ([{"use": "bash", "with": {"denied": ["git"]}}], "did you mean deny?"),
        ([{"use": "calculator", "with": {"precision": 99}}], "less than or equal to 17"),
        ([{"use": "serch"}], "did you mean search?"),
    ],
)
def test_what_can_not_be_offered_is_refused_before_any_episode(
    job_file: Callable[..., Job], tools: list[object], why: str
) -> None:
    job = job_file(scenarios=["gold"], agent={"tools": tools})

    done = swe_rollout("run", str(job.path), check=False)
    assert done.returncode != 0
    assert why in done.stderr + done.stdout
    assert not job.folder.exists() or not committed(job.folder)
