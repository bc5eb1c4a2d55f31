"""verifiers' traces as JSON. `tests/trainers/generators` reads them with verifiers' own models."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from swe_rollout.errors import TaskError
from swe_rollout.export.verifiers import verifiers_format
from swe_rollout.tokens.log import SamplingUsed
from swe_rollout.types.episode import StopReason
from swe_rollout.types.trajectory import ChatRecord, Trajectory
from swe_rollout.types.turn import FinishReason
from unit.export.export_parts import branched, failed, forked, reading, trajectory

TRACE = {
    "version", "id", "verifiers", "task", "agent", "tools", "nodes", "calls", "rewards", "metrics",
    "info", "is_completed", "ok", "stop_condition", "is_timeout", "errors",
}  # fmt: skip
"""The fields of verifiers 0.4.0's Trace that are written."""
NODE = {"parent", "tools", "message", "sampled", "token_ids", "mask", "logprobs"}
CALL = {"node", "finish_reason", "sampling", "usage", "time"}


def traced(record: Trajectory) -> dict[str, Any]:
    line = verifiers_format(reading()).part(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    found: dict[str, Any] = json.loads(line)
    assert found.keys() <= TRACE
    assert all(node.keys() <= NODE for node in found["nodes"])
    assert all(call.keys() == CALL for call in found["calls"])
    return found


def test_a_graded_episode_has_its_terms() -> None:
    found = traced(trajectory())

    assert found["rewards"] == {"resolved": {"score": 1.0, "weight": 1.0}}
    assert (found["ok"], found["stop_condition"]) == (True, "agent_completed")
    assert found["metrics"] == {"resolved": 1.0}
    assert found["id"] == "demo/a/0"
    assert found["task"]["data"] == {"id": "a", "sample": 0}


def test_a_failed_episode_has_no_reward_and_is_never_zero() -> None:
    found = traced(failed(trajectory()))

    assert found["rewards"] == {"reward": None}
    assert found["metrics"] == {"resolved": None}
    assert (found["ok"], found["stop_condition"]) == (False, "sandbox_error")
    assert found["errors"] == [{"type": "SandboxError", "message": "lost"}]


def test_an_episode_that_was_not_graded_is_not_ok() -> None:
    """prime-rl masks the tokens of traces that are not ok."""
    found = traced(replace(trajectory(), reward=None, stop_reason=StopReason.CANCELLED))
    assert (found["ok"], found["rewards"]) == (False, {"reward": None})


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (StopReason.TURN_LIMIT, "max_turns"),
        (StopReason.CONTEXT_FULL, "max_total_tokens"),
        (StopReason.TIME_LIMIT, "agent_timeout"),
        (StopReason.REPEATED, "repeated"),
    ],
)
def test_limits_are_named_as_verifiers_does(stop: StopReason, expected: str) -> None:
    found = traced(replace(trajectory(), stop_reason=stop))
    assert found["stop_condition"] == expected
    assert found["is_timeout"] is (stop is StopReason.TIME_LIMIT)


def test_calls_have_the_sampling_and_tokens_of_their_node() -> None:
    record = trajectory()
    used = SamplingUsed(0.5, 0.9, 40, 0.1)
    segments = tuple(replace(each, sampling=used) for each in record.segments)
    turns = (replace(record.turns[0], finish_reason=FinishReason.ABORT), *record.turns[1:])

    found = traced(replace(record, segments=segments, turns=turns))

    assert [found["nodes"][call["node"]]["sampled"] for call in found["calls"]] == [True] * 3
    assert [call["finish_reason"] for call in found["calls"]] == [None, "tool_calls", "stop"]
    call = found["calls"][0]
    assert call["sampling"] == {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1}
    assert call["usage"] == {
        "prompt_tokens": 17,
        "completion_tokens": 5,
        "cached_input_tokens": 3,
    }
    assert traced(record)["calls"][0]["sampling"] is None


def test_logprobs_keep_every_digit() -> None:
    record = trajectory()
    logprobs = tuple(None if each is None else -0.123456789 for each in record.logprobs)
    found = traced(replace(record, logprobs=logprobs))
    assert {x for node in found["nodes"] for x in node["logprobs"]} == {-0.123456789}


def test_each_branch_begins_a_path() -> None:
    found = traced(branched())
    roots = [node for node in found["nodes"] if node["parent"] is None]
    assert [node["message"]["content"] for node in roots] == ["be good", "look into it"]
    assert all("tools" in node for node in roots)


def test_an_episode_without_tokens_is_left_out() -> None:
    with pytest.raises(TaskError, match="returns no tokens"):
        traced(replace(trajectory(), chat=ChatRecord(("m",), ())))


def test_what_a_fork_inherited_has_the_mask_0() -> None:
    record = forked()
    assert record.forked_from is not None
    ids, mask, logprobs = list[int](), list[bool](), list[float]()
    for node in traced(record)["nodes"]:
        ids += node["token_ids"]
        mask += node["mask"]
        logprobs += node["logprobs"]
    assert ids == list(record.token_ids)
    inherited = record.forked_from.tokens
    assert not any(mask[:inherited])
    assert mask[inherited:] == [bool(bit) for bit in record.loss_mask[inherited:]]
    assert len(logprobs) == sum(mask)
