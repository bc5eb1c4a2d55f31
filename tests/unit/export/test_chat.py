"""Chats for fine-tuning: roles, calls with their results, reasoning as sampled (J3)."""

from __future__ import annotations

import json
from dataclasses import replace

from swe_rollout.export.chat import call_ids, messages, messages_format
from swe_rollout.types.turn import Observation
from unit.export.export_parts import branched, failed, reading, trajectory


def test_turns_become_messages_and_reasoning_stays() -> None:
    chat = list(messages(trajectory(), reading()))
    assert [each["role"] for each in chat] == [
        *("system", "user"),
        *("assistant", "tool", "tool"),
        *("assistant", "tool"),
        "assistant",
    ]
    first = chat[2]
    assert first["content"] == "<think>hm</think>I look."
    assert first["tool_calls"] == [
        {
            "id": f"call_0_{number}",
            "type": "function",
            "function": {"name": "bash", "arguments": {"command": "ls"}},
        }
        for number in range(2)
    ]
    assert [each.get("tool_call_id") for each in chat[3:5]] == ["call_0_0", "call_0_1"]
    assert [each["content"] for each in chat[3:5]] == ["out 0", "out 1"]


def test_a_call_that_did_not_parse_stays_in_the_text_as_it_was_sampled() -> None:
    chat = list(messages(trajectory(), reading()))
    assert chat[5] == {"role": "assistant", "content": "<think>hm</think>I look.<call 1>"}
    assert chat[6] == {"role": "tool", "content": "out 0"}


def test_an_episode_that_ended_during_a_turn_has_fewer_results() -> None:
    found = trajectory()
    cut = replace(found.turns[0], observations=(Observation("one"),))
    chat = list(messages(replace(found, turns=(cut,)), reading()))
    assert [each["role"] for each in chat[2:]] == ["assistant", "tool"]
    assert len(chat[2]["tool_calls"]) == 2  # type: ignore[arg-type]


def test_no_system_message_where_the_job_has_none() -> None:
    chat = list(messages(trajectory(), reading(system="")))
    assert chat[0] == {"role": "user", "content": "solve a"}


def test_a_row_tells_the_result_for_whoever_selects() -> None:
    form = messages_format(reading())
    row = json.loads(form.part(trajectory("b", 1)))
    assert row["episode"] == "demo/b/1"
    assert (row["reward"], row["resolved"], row["masked"]) == (1.0, True, False)
    assert row["tools"] == [{"type": "function"}]
    row = json.loads(form.part(failed(trajectory())))
    assert (row["reward"], row["masked"], row["stop_reason"]) == (None, True, None)


def test_ids_of_calls_are_the_policys_own_unless_two_are_the_same() -> None:
    turn = trajectory().turns[0]
    one, two = turn.tool_calls
    named = replace(turn, tool_calls=(replace(one, id="x"), replace(two, id="y")))
    assert call_ids(named) == ("x", "y")
    same = replace(turn, tool_calls=(replace(one, id="x"), replace(two, id="x")))
    assert call_ids(same) == ("call_0_0", "call_0_1")


def test_an_episode_of_several_branches_has_a_chat_for_each() -> None:
    rows = [json.loads(each) for each in messages_format(reading()).part(branched()).splitlines()]
    assert [row["branch"] for row in rows] == [0, 1]
    roles = [[message["role"] for message in row["messages"]] for row in rows]
    assert roles[0] == ["system", "user", "assistant", "tool", "tool", "user", "assistant"]
    assert roles[1] == ["user", "assistant", "tool"]
    assert rows[0]["messages"][5]["content"] == "and now?"
