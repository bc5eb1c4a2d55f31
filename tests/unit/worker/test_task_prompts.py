"""Exports show the prompts that a job's policy was shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swe_rollout.agent.prompts import SYSTEM
from swe_rollout.types.trajectory import ChatRecord
from swe_rollout.worker.stored_tasks import StoredTasks
from swe_rollout.worker.task_prompts import reading_of
from unit.export.export_parts import trajectory
from unit.worker.work_parts import TASK, job

EPISODE = replace(trajectory("a"), instance_digest=TASK.digest)


def test_the_default_prompts_are_filled_in() -> None:
    found = reading_of(StoredTasks(job(), {"a": TASK}), on_note=print).prompt(EPISODE)
    assert found.system == SYSTEM
    assert "fix it" in found.user
    assert "/testbed" in found.user
    functions = [tool["function"] for tool in found.tools]
    assert [each["name"] for each in functions] == [  # type: ignore[index]
        "bash",
        "str_replace_editor",
        "submit",
    ]


def test_a_jobs_own_prompts_replace_them() -> None:
    agent = {"systemPrompt": "", "instancePrompt": "do: {problem_statement}"}
    found = reading_of(StoredTasks(job(agent=agent), {"a": TASK}), on_note=print).prompt(EPISODE)
    assert (found.system, found.user) == ("", "do: fix it")


def test_tools_that_are_not_here_are_left_out_with_a_note() -> None:
    notes = list[str]()
    tasks = StoredTasks(job(agent={"tools": ["no_such.module:tool"]}), {"a": TASK})
    found = reading_of(tasks, on_note=notes.append).prompt(EPISODE)
    assert found.tools == ()
    assert len(notes) == 1


def test_turns_are_read_in_the_format_of_their_record() -> None:
    reading = reading_of(StoredTasks(job(), {"a": TASK}), on_note=print)
    last = EPISODE.turns[2]
    assert reading.text(last, EPISODE).words == "<think>hm</think>I look.<call 2>"


@pytest.mark.parametrize(
    ("agent", "words"), [({}, "I look."), ({"toolFormat": "tool_call_line"}, None)]
)
def test_calls_of_a_chat_api_stand_beside_the_text_unless_its_words_hold_them(
    agent: dict[str, object], words: str | None
) -> None:
    chat = ChatRecord(("m",), ())
    talked = replace(trajectory("a", text="I look."), token_path=None, chat=chat)
    reading = reading_of(StoredTasks(job(agent=agent), {"a": TASK}), on_note=print)
    called, broken, said = talked.turns

    assert reading.text(called, talked).words == words
    assert reading.text(broken, talked).words is None
    assert reading.text(said, talked).words == "I look."
