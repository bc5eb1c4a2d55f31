"""Dumps of the Agentic Rollout Library, in each form that it writes (J3)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_rollout.errors import UsageError
from swe_rollout.export.files import export
from swe_rollout.export.library_dumps import read_dumps
from swe_rollout.export.library_layout import LibraryLayout
from swe_rollout.export.patches import PatchFilter
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.viewer.timeline import timeline_page
from unit.export.export_parts import PATCH, reading, stream, trajectory
from unit.export.test_library_layout import FACTS

STEPS = [
    {"step_type": "observation", "content": "fix\u2028it", "metadata": {}, "reward_score": None},
    {"step_type": "thought", "content": "I think"},
    {"step_type": "action", "content": "bash: ls", "tool_name": "bash", "tool_args": {"c": "ls"}},
    {"step_type": "action_result", "content": "x.py\n------\ny.py", "tool_result": {"a": 1}},
    {"step_type": "final_answer", "content": "done"},
]
WHOLE = {
    "request_id": "a/b 1",
    "is_completed": True,
    "final_reward": 0.5,
    "total_tokens": 9,
    "system_prompt": "be good",
    "metadata": {"model": "qwen"},
    "steps": STEPS,
}
CHAT = [
    {"role": "meta", "content": "{}", "meta": {"model": "qwen", "instance_id": "a-b-1"}},
    *({"role": "system", "content": "be good"}, {"role": "user", "content": "fix\u2028it"}),
    *({"role": "assistant", "content": "I think"}, {"role": "assistant", "content": "bash: ls"}),
    *({"role": "user", "content": "x.py\n------\ny.py"}, {"role": "assistant", "content": "done"}),
]
RULE = "-" * 30
TEXT = f"""\
Trajectory: a/b 1
Completed: True
Final Reward: 0.5
Total Steps: 5
{"=" * 50}

Step 1: OBSERVATION
Content: fix\u2028it
{RULE}

Step 2: THOUGHT
Content: I think
{RULE}

Step 3: ACTION
Content: bash: ls
Tool: bash
Args: {{'c': 'ls'}}
{RULE}

Step 4: ACTION_RESULT
Content: x.py
------
y.py
{RULE}

Step 5: FINAL_ANSWER
Content: done
{RULE}

"""


def read(path: Path) -> list[Trajectory]:
    def fail(problem: UsageError) -> None:
        raise problem

    return list(read_dumps([path], job="old", on_problem=fail))


@pytest.mark.parametrize(
    ("name", "text", "has_calls"),
    [
        ("t.json", json.dumps(WHOLE), True),
        ("t.jsonl", "\n".join(json.dumps(each, ensure_ascii=False) for each in CHAT), False),
        ("t.txt", TEXT, True),
        ("trajectories_20250101_000000.json", json.dumps([WHOLE]), True),
    ],
)
def test_each_form_is_an_episode_of_the_same_turns(
    tmp_path: Path, name: str, text: str, *, has_calls: bool
) -> None:
    path = tmp_path / name
    path.write_text(text)

    (found,) = read(path)

    assert str(found.episode) == "old/a-b-1/0"
    assert [turn.text for turn in found.turns] == ["I think", "bash: ls", "done"]
    assert [o.text for turn in found.turns for o in turn.observations] == ["x.py\n------\ny.py"]
    assert found.prompts[-1].text == "fix\u2028it"
    assert found.token_ids == ()
    assert found.chat is not None
    if has_calls:
        assert [(c.name, c.arguments) for c in found.turns[1].tool_calls] == [("bash", {"c": "ls"})]
        assert found.reward is not None
        assert found.reward.value == 0.5
    else:
        assert found.policy == "qwen"


async def test_what_is_exported_in_the_librarys_layout_is_read_with_its_patches(
    tmp_path: Path,
) -> None:
    layout = LibraryLayout(reading(), PatchFilter(()), timeline_page, FACTS)
    await export(stream(trajectory(), trajectory(sample=1)), tmp_path / "out", layout.format())

    files = sorted((tmp_path / "out" / "trajectories").iterdir())
    found = list(read_dumps(files, job="old", on_problem=lambda _: None))

    assert [each.episode.sample for each in found] == [0, 1]
    assert {each.patch for each in found} == {PATCH}
    assert all(len(each.turns) == 3 for each in found)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("x.json", b"", "Expecting value"),
        ("x.json", b"[" * 100_000, "recursion"),
        ("x.json", b"{}", "no list of steps"),
        ("x.json", b'{"steps": [{"step_type": "leap"}]}', "leap is no type of a step"),
        ("x.json", b'{"steps": [], "final_reward": 1' + b"0" * 400 + b"}", "too large"),
        ("x.jsonl", b"\n", "it has no message"),
        ("x.jsonl", b'{"role": "user", "content": ""}\n[]', "line 2 is no message"),
        ("x.txt", b"\xff\xfe", "can't decode"),
    ],
)
def test_what_is_no_dump_is_reported_with_the_reason(
    tmp_path: Path, name: str, data: bytes, why: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(UsageError, match="is no dump of a trajectory") as caught:
        read(path)
    assert why in str(caught.value.why)
