"""verifiers: records that its own models read, and whose branches train each token once."""

from __future__ import annotations

import pytest
from verifiers.v1.trace import Branch, WireTrace

from swe_rollout.agent.recorded_text import recorded_text
from swe_rollout.agent.tools import toolbox
from swe_rollout.export.chat import Reading, TaskPrompt
from swe_rollout.export.verifiers import verifiers_format
from swe_rollout.integrations.verifiers import TrainingColumns, trace_of, training_columns
from swe_rollout.testing.ratio import RatioRow, check_ratio, forced
from trainers.generators.forced import ForcedPolicy
from trainers.generators.records import play

pytestmark = pytest.mark.trainers

TOOLS = toolbox(("bash", "agent", "submit")).specs
READING = Reading(
    lambda each: TaskPrompt("", each.episode.instance, tuple(tool.function() for tool in TOOLS)),
    lambda turn, each: recorded_text(turn, each.token_path, TOOLS),
)


async def test_an_exported_line_is_a_trace_that_holds_every_token_once(
    policy: ForcedPolicy,
) -> None:
    (record,) = await play(policy)

    found = WireTrace.model_validate_json(verifiers_format(READING).part(record))

    assert found.ok
    assert not found.has_error
    assert found.rewards["resolved"] is not None
    assert found.reward == 1.0
    assert found.stop_condition == "agent_completed"
    assert found.num_turns == len(record.turns)
    assert found.task.data.id == "task-a"
    assert [each.token_ids for each in found.branches] == [
        list(branch.token_ids) for branch in record.samples
    ]
    assert [each.sampled_mask for each in found.branches] == [
        list(map(bool, branch.loss_mask)) for branch in record.samples
    ]
    assert sum(sum(node.mask) for node in found.nodes) == record.sampled_count
    assert all(branch.trainable for branch in found.branches)
    tools = [each.name for each in found.branches[0].tools]
    assert tools == ["bash", "agent", "submit"]


async def test_messages_are_the_conversation_and_their_tokens(policy: ForcedPolicy) -> None:
    (record,) = await play(policy)
    main, sub_agent = trace_of(record, READING).branches

    roles = [node.message.role for node in main.nodes]
    turn = ["assistant", "tool"]
    assert roles == ["system", "user", "assistant", "tool", "tool", *turn * 4]
    first = next(node for node in main.nodes if node.sampled)
    assert [call.name for call in first.message.tool_calls or []] == ["bash", "bash"]
    decode = policy.tokenizer.decode
    for node in (*main.nodes, *sub_agent.nodes):
        assert all(node.mask) == node.sampled or not node.token_ids
        if node.sampled:
            assert len(node.logprobs) == len(node.token_ids)
            assert (node.message.content or "")[:6] in decode(node.token_ids)
    assert sub_agent.nodes[0].parent is None
    calls = trace_of(record, READING).calls
    assert {call.sampling.temperature for call in calls if call.sampling} == {0.8}
    assert "length" in {call.finish_reason for call in calls}


async def test_the_columns_of_prime_rl_equal_the_branches_and_the_ratio_is_one(
    policy: ForcedPolicy,
) -> None:
    records = await play(policy, samples=2)
    columns = [each for record in records for each in training_columns(record, env_name="swe")]
    branches = [b for record in records for b in trace_of(record, READING).branches]

    for sample, branch in zip(columns, branches, strict=True):
        assert (sample["token_ids"], sample["mask"]) == (branch.token_ids, branch.sampled_mask)
        assert sample["logprobs"] == branch.logprobs
        assert len(sample["temperatures"]) == len(sample["token_ids"])
    rows = [
        ratio_row(sample, branch, policy) for sample, branch in zip(columns, branches, strict=True)
    ]
    report = check_ratio(rows, forced(policy.teacher())).require()
    assert report.tokens == sum(record.sampled_count for record in records) > 300


def ratio_row(sample: TrainingColumns, branch: Branch, policy: ForcedPolicy) -> RatioRow:
    """Read the trace's logprobs, at prime-rl's temperatures."""
    mask = [int(each) for each in branch.sampled_mask[1:]]
    versions = policy.versions(branch.token_ids, 1, mask)
    temperatures = sample["temperatures"][1:]
    return RatioRow(branch.token_ids, 1, mask, branch.logprobs[1:], temperatures, versions)


async def test_what_broke_has_an_error_and_no_reward(policy: ForcedPolicy) -> None:
    (record,) = await play(policy, lost=1)

    found = trace_of(record, READING)

    assert found.rewards == {"reward": None}
    assert found.metrics == {"resolved": None}
    assert found.has_error
    assert (found.stop_condition, found.errors[0].type) == ("sandbox_error", "SandboxError")
    assert training_columns(record, env_name="swe") == []
