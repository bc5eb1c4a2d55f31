"""The message graph: every token once, in the order of its branch, at the message it belongs to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swe_rollout.errors import TaskError
from swe_rollout.export.verifiers import MessageNode, message_graph
from swe_rollout.tokens.log import Segment, SegmentKind
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus
from unit.export.export_parts import Text, branched, failed, reading, trajectory


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
