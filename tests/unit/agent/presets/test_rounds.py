"""The loop of all presets: state, limits, exact tokens, and nothing written for the policy."""

from __future__ import annotations

import asyncio

import pytest

from swe_rollout.agent.presets.coding import Coding
from swe_rollout.agent.program import AGENTS, Agent, run_agent
from swe_rollout.extension import ExtensionError
from swe_rollout.spec.agent import PRESETS
from swe_rollout.spec.limits import Limits
from swe_rollout.testing.extensions.agents import AgentContract
from swe_rollout.tokens.branch import BranchKind
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import CallStatus
from unit.agent.agent_parts import Echo
from unit.agent.presets.preset_parts import SUBMIT, call, episode, run

NAMES = sorted(set(PRESETS) - {"loop"})
# The contract's policies never reason.
SILENT: dict[str, dict[str, object]] = {
    "react": {"requireThoughtBeforeAction": False},
    "swe": {"requireReasoning": False},
}


@pytest.mark.parametrize("name", NAMES, scope="class")
class TestPresets(AgentContract):
    @pytest.fixture
    def agent(self, name: str) -> Agent:
        return AGENTS.load(name, SILENT.get(name, {}))


def test_every_preset_has_a_program_and_defaults() -> None:
    """WA11, R1, R2: one registry knows every documented agent."""
    assert set(PRESETS) <= set(AGENTS.names())
    for name in PRESETS:
        assert AGENTS.load(name)
    with pytest.raises(ExtensionError, match="did you mean react"):
        AGENTS.load("reakt")


@pytest.mark.parametrize("name", NAMES)
async def test_a_preset_plays_an_episode_in_its_own_format(name: str) -> None:
    """A4-A8, A12, WA9: every sampled token is recorded once, with its logprob."""
    sandbox = Echo()
    played = episode(
        name, ["Thought: I look.", run("ls -l")], ["Thought: Done.", SUBMIT], sandbox=sandbox
    )

    assert await played.run() is StopReason.SUBMITTED
    assert sandbox.commands == ["ls -l"]
    log, sampled = played.context.log, [len(turn) for turn in played.engine.turns]
    assert sampled == [turn.completion_tokens for turn in played.context.turns]
    assert log.sampled == sum(sampled)
    given = [value for value, mask in zip(log.logprobs, log.loss_mask, strict=True) if mask]
    assert given == [-0.25 - at for size in sampled for at in range(size)]
    for request in played.engine.requests:
        assert log.ids[: len(request.input_ids)] == request.input_ids.tolist()


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_is_written_for_the_policy(name: str) -> None:
    """WA3: what the policy did not sample is no assistant turn, and is not trained on."""
    turns = [["Thought: I look.", run("ls")], "Thought: hm.", ["Thought: Done.", SUBMIT]]
    played = episode(name, *turns)

    await played.run()
    sampled = played.context.turns
    assert played.text.count("<|im_start|>assistant\n") == len(sampled)
    assert int(played.context.log.loss_mask.sum()) == played.context.log.sampled


async def test_three_episodes_of_one_agent_object_do_not_mix() -> None:
    """WA5: state is per episode, and every command goes to its own sandbox."""
    agent = AGENTS.load("coding", {"maxImplementationAttempts": 2})
    sandboxes = [Echo(pause_s=0.01) for _ in range(3)]
    episodes = [
        episode(
            "coding",
            ["I run.", run(f"echo {at}")],
            *[["I change it.", run("git apply fix.patch")]] * at,
            ["Done.", SUBMIT],
            ["Done.", SUBMIT],
            sandbox=sandbox,
        )
        for at, sandbox in enumerate(sandboxes)
    ]

    stops = await asyncio.gather(*(run_agent(agent, each.context) for each in episodes))
    assert set(stops) == {StopReason.SUBMITTED}
    assert [sandbox.commands for sandbox in sandboxes] == [
        [f"echo {at}", *["git apply fix.patch"] * at] for at in range(3)
    ]
    # One of them changed nothing, and is not asked to test.
    assert [len(each.context.turns) for each in episodes] == [2, 4, 5]
    assert agent == Coding(max_implementation_attempts=2)


@pytest.mark.parametrize("name", NAMES)
async def test_rounds_are_bounded(name: str) -> None:
    """WA8: a named budget ends the episode, whatever the policy does."""
    turns = [["Thought: I look.", run(f"ls {at}")] for at in range(9)]
    played = episode(name, *turns, options={"maxRounds": 4})

    assert await played.run() is StopReason.TURN_LIMIT
    assert len(played.context.turns) == 4


async def test_an_episode_without_a_bound_on_its_rounds_has_the_limits_of_the_job() -> None:
    """WA2: no deadline or bound of the agent's own is needed."""
    turns = [["I look.", run(f"ls {at}")] for at in range(9)]
    played = episode("swe", *turns, limits=Limits(turns=3))

    assert await played.run() is StopReason.TURN_LIMIT


async def test_a_long_log_is_summarised() -> None:
    turns = [["I look.", run("echo " + "x" * 400)] for _ in range(6)]
    limits = Limits(turns=20, context_tokens=8192, compact_at=3000)
    played = episode("swe", *turns, ["Done.", SUBMIT], limits=limits)

    assert await played.run() is StopReason.SUBMITTED
    assert [branch.kind for branch in played.context.branches()] == [
        BranchKind.MAIN,
        BranchKind.RESTART,
    ]


def test_options_are_checked_when_the_job_is_loaded() -> None:
    for options in ({"maxRounds": 0}, {"maxRounds": "many"}):
        with pytest.raises(ExtensionError, match="can't be made"):
            AGENTS.load("general", options)
    with pytest.raises(ExtensionError, match="did you mean maxRounds"):
        AGENTS.load("general", {"maxRound": 3})


@pytest.mark.parametrize("name", NAMES)
async def test_a_tool_that_does_not_exist_is_an_error_that_names_those_that_do(name: str) -> None:
    """WA1, A3: the seed reports success, with an empty text."""
    turn = ["Thought: I look.", call("serch", text="x")]
    played = episode(name, turn, ["Thought: Done.", SUBMIT])

    assert await played.run() is StopReason.SUBMITTED
    assert "the tools are bash, str_replace_editor, submit" in played.answers[0]
    assert played.context.turns[0].tool_calls[0].status is CallStatus.UNKNOWN_TOOL


@pytest.mark.parametrize("name", NAMES)
async def test_commands_arrive_as_they_were_written(name: str) -> None:
    """WA11, WA10: no shell and no comma comes between."""
    commands, sandbox = ["--version", "-rf 'x' \"y\" $(z)", "a\n\tb  ", "a, b=c, d"], Echo()
    turns = [
        *(["Thought: I run.", run(command)] for command in commands),
        ["Thought: Done.", SUBMIT],
    ]

    assert await episode(name, *turns, sandbox=sandbox).run() is StopReason.SUBMITTED
    assert sandbox.commands == commands
