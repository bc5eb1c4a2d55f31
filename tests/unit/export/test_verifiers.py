"""verifiers' traces as JSON. `tests/trainers/generators` reads them with verifiers' own models."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from swe_rollout.errors import TaskError
from swe_rollout.export.verifiers import MessageNode, message_graph, verifiers_format
from swe_rollout.tokens.log import SamplingUsed, Segment, SegmentKind
from swe_rollout.types.episode import StopReason
from swe_rollout.types.trajectory import ChatRecord, Trajectory
from swe_rollout.types.turn import CallStatus, FinishReason
from unit.export.export_parts import Text, branched, failed, forked, reading, trajectory

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


def paths(nodes: list[MessageNode]) -> list[list[MessageNode]]:
    found: list[list[MessageNode]] = []
    for index, node in enumerate(nodes):
        if node.parent is None:
            found.append([])
        else:
            assert node.parent == index - 1
        found[-1].append(node)
    return found


@pytest.mark.parametrize("record", [trajectory(), branched(), failed(trajectory())])
def test_a_path_has_the_tokens_of_its_branch(record: Trajectory) -> None:
    found = paths(message_graph(record, reading()))

    for path, branch in zip(found, record.samples, strict=True):
        assert tuple(i for node in path for i in node.token_ids) == branch.token_ids
        assert tuple(int(m) for node in path for m in node.mask) == branch.loss_mask
        assert [x for node in path for x in node.logprobs] == [
            x for x in branch.logprobs if x is not None
        ]
        for node in path:
            assert len(node.logprobs) == sum(node.mask)


def test_what_the_harness_wrote_is_the_last_message_before_a_turn() -> None:
    (path,) = paths(message_graph(trajectory(), reading()))

    assert [(n.message["role"], len(n.token_ids), sum(n.mask)) for n in path] == [
        ("system", 0, 0),
        ("user", 20, 0),
        ("assistant", 5, 5),
        ("tool", 0, 0),
        ("tool", 2, 0),
        ("assistant", 5, 5),
        ("tool", 2, 0),
        # Behind the last turn no message follows.
        ("assistant", 7, 5),
    ]


def test_calls_are_said_as_sampled_and_results_name_them() -> None:
    record = trajectory()
    first = record.turns[0]
    calls = (first.tool_calls[0], replace(first.tool_calls[1], status=CallStatus.BAD_ARGUMENTS))
    record = replace(record, turns=(replace(first, tool_calls=calls), *record.turns[1:]))

    texts = replace(reading(), text=lambda _, __: Text("all", "some"))

    (path,) = paths(message_graph(record, texts))
    said = path[2].message["tool_calls"]

    assert said == [
        {"id": "call_0_0", "name": "bash", "arguments": '{"command":"ls"}'},
        {"id": "call_0_1", "name": "bash", "arguments": "raw"},
    ]
    assert [each.message.get("tool_call_id") for each in path[3:5]] == ["call_0_0", "call_0_1"]


def test_a_turn_in_several_runs_is_one_message() -> None:
    """A call that was aborted, or met new weights, goes on in the same turn."""
    record = trajectory()
    cut = []
    for each in record.segments:
        if each.kind is SegmentKind.SAMPLED:
            cut += [
                replace(each, end=each.start + 2, weight_version="1"),
                Segment(each.kind, each.start + 2, each.end, each.turn, "2"),
            ]
        else:
            cut.append(each)

    whole = message_graph(record, reading())
    found = message_graph(replace(record, segments=tuple(cut)), reading())

    assert [node.token_ids for node in found] == [node.token_ids for node in whole]


def test_a_turn_without_tokens_is_a_message_too() -> None:
    record = trajectory()
    first = next(each for each in record.segments if each.kind is SegmentKind.SAMPLED)
    others = [each for each in record.segments if each is not first]

    nodes = message_graph(replace(record, segments=tuple(others)), reading())

    assert sum(node.turn is not None for node in nodes) == 3


def test_a_branch_without_a_prompt_as_text_is_not_shown() -> None:
    with pytest.raises(TaskError, match="branch 1 has no prompt"):
        message_graph(replace(branched(), prompts=()), reading())
