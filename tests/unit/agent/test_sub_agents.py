"""Sub-agents and restarts: branches of their own, under the limits of the episode."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.steps import MAX_DEPTH, MAX_SUB_AGENTS
from swe_rollout.errors import EngineError, MisuseError
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.branch import BranchKind
from swe_rollout.tokens.replay import ExpertShape, Recording
from swe_rollout.types.episode import StopReason
from unit.agent.agent_parts import (
    RENDERER,
    SUBMIT,
    Echo,
    Telling,
    bash,
    encode,
    gone,
    loop_of,
    player,
)
from waits import PATIENCE_S


async def delegates(context: AgentContext) -> StopReason:
    await context.begin()
    await context.turn()
    child = await context.spawn("Look around.", tools=["bash"])
    await child.finish()
    context.say(f"It says: {child.said}")
    return await context.finish()


async def test_a_sub_agent_works_in_the_same_sandbox_in_a_branch_of_its_own() -> None:
    sandbox = Echo()
    engine = player(bash("parent"), bash("child"), "<think>Hm.</think>Nothing here.", SUBMIT)
    episode = loop_of(engine, sandbox=sandbox, program=delegates)

    assert await episode.run() is StopReason.SUBMITTED

    assert sandbox.commands == ["parent", "child"]
    main, child = episode.context.branches()
    assert (child.kind, child.parent) == (BranchKind.SUB_AGENT, 0)
    assert child.parent_length == episode.turns[0].request.length + sum(main.loss_mask) - sum(
        turn.completion_tokens for turn in episode.turns[1:]
    )
    text = RENDERER.decode(child.token_ids)
    assert "<|im_start|>user\nLook around.<|im_end|>" in text
    assert "It fails." not in text
    assert "submit" not in text.partition("<|im_start|>user")[0]
    assert "It says: Nothing here." in RENDERER.decode(main.token_ids)
    assert [turn.branch for turn in episode.context.episode_turns] == [0, 1, 1, 0]
    assert [turn.index for turn in episode.turns] == [0, 3]


async def test_sub_agents_may_run_at_the_same_time_and_sample_one_after_the_other() -> None:
    async def fans_out(context: AgentContext) -> StopReason:
        await context.begin()
        children = [await context.spawn(f"Part {part}.") for part in range(4)]
        stops = await asyncio.gather(*(child.finish() for child in children))
        assert set(stops) <= {StopReason.SUBMITTED}
        return await context.finish()

    engine = player(*[bash("ls")] * 8, SUBMIT, pause_s=0.001)
    episode = loop_of(engine, program=fans_out, sandbox=Echo(pause_s=0.001))
    assert await episode.run() is StopReason.SUBMITTED
    assert len(episode.context.branches()) == 5


async def test_the_turns_of_the_episode_are_for_all_agents_together() -> None:
    async def spends(context: AgentContext) -> StopReason:
        await context.begin()
        child = await context.spawn("Look.", turns=2)
        assert await child.finish() is StopReason.TURN_LIMIT
        assert len(child.turns) == 2
        other = await context.spawn("Look.", turns=1000)
        assert await other.finish() is StopReason.TURN_LIMIT
        assert len(other.turns) == 3
        return await context.finish()

    engine = player(bash("ls"))
    episode = loop_of(engine, program=spends, limits=Limits(turns=5))
    assert await episode.run() is StopReason.TURN_LIMIT
    assert len(episode.context.episode_turns) == 5


async def test_the_time_of_the_episode_is_for_all_agents_together() -> None:
    async def spends(context: AgentContext) -> StopReason:
        await context.begin()
        stops = await asyncio.gather(*[(await context.spawn("Look.")).finish() for _ in range(3)])
        assert set(stops) == {StopReason.TIME_LIMIT}
        return await context.finish()

    engine = player(bash("ls"), pause_s=600)
    episode = loop_of(engine, program=spends, limits=Limits(episode_seconds=1))
    assert await asyncio.wait_for(episode.run(), PATIENCE_S) is StopReason.TIME_LIMIT
    assert episode.context.episode_turns == []


async def test_levels_and_numbers_of_sub_agents_are_bounded() -> None:
    async def nests(context: AgentContext) -> StopReason:
        await context.begin()
        child, depth = context, 0
        while child.can_spawn:
            child, depth = await child.spawn("Deeper."), depth + 1
        assert depth == MAX_DEPTH
        with pytest.raises(MisuseError, match="levels of sub-agents"):
            await child.spawn("Deeper.")
        for _ in range(MAX_SUB_AGENTS - MAX_DEPTH):
            await context.spawn("Another.")
        with pytest.raises(MisuseError, match=f"{MAX_SUB_AGENTS} in an episode"):
            await context.spawn("One too many.")
        return StopReason.FINISHED

    episode = loop_of(player(SUBMIT), program=nests)
    assert await episode.run() is StopReason.FINISHED
    assert len(episode.context.branches()) == MAX_SUB_AGENTS + 1


async def test_a_sub_agent_has_no_tool_that_its_parent_lacks() -> None:
    async def asks(context: AgentContext) -> StopReason:
        await context.begin()
        await context.spawn("Look.", tools=["bash", "browser"])
        return StopReason.FINISHED

    with pytest.raises(MisuseError, match="the agent has no tool browser"):
        await loop_of(player(SUBMIT), program=asks).run()


async def test_a_failure_in_a_sub_agent_ends_the_episode() -> None:
    async def hides(context: AgentContext) -> StopReason:
        await context.begin()
        child = await context.spawn("Look.")
        with suppress(EngineError):
            await child.turn()
        with pytest.raises(MisuseError, match="the episode has failed"):
            await context.turn()
        return StopReason.FINISHED

    with pytest.raises(EngineError, match="gone"):
        await loop_of(gone(), program=hides).run()


async def test_a_restart_keeps_what_was_sampled_and_goes_on_with_other_messages() -> None:
    async def restarts(context: AgentContext) -> StopReason:
        await context.begin()
        await context.turn()
        await context.restart("Start again.")
        assert RENDERER.decode(context.log.ids).count("<|im_start|>assistant") == 1
        return await context.finish()

    engine = player(bash("lost"), bash("ls"), SUBMIT)
    episode = loop_of(engine, program=restarts)
    assert await episode.run() is StopReason.SUBMITTED
    main, again = episode.context.branches()
    assert (again.kind, again.parent, again.parent_length) == (
        BranchKind.RESTART,
        0,
        len(main.token_ids),
    )
    assert len(episode.turns) == 3
    assert "lost" not in RENDERER.decode(again.token_ids)


async def test_each_branch_has_replay_data_of_its_own() -> None:
    texts = (bash("parent"), bash("child"), "Nothing here.", SUBMIT)
    engine = Telling([encode(text + "<|im_end|>") for text in texts])
    recording = Recording(ExpertShape(2, 1), sampling_mask=True, prompt_logprobs=True)
    episode = loop_of(engine, program=delegates, recording=recording)
    await episode.run()
    for branch in episode.context.branches():
        assert branch.routed_experts is not None
        assert branch.sampling_mask is not None
        assert branch.routed_experts.rows == len(branch.token_ids) - 1
        assert len(branch.sampling_mask.offsets) == branch.sampled + 1
        assert len(branch.prompt_logprobs) == len(branch.token_ids)


async def test_two_branches_with_the_same_prompt_have_seeds_of_their_own() -> None:
    async def again(context: AgentContext) -> StopReason:
        await context.begin()
        await context.turn()
        await context.restart(context.task)
        return await context.finish()

    engine = player(bash("ls"), SUBMIT)
    await loop_of(engine, program=again, sampling=Sampling(seed=0x7FFFFFFF)).run()
    assert [request.sampling.seed for request in engine.requests] == [0x7FFFFFFF, 0]
    assert engine.requests[0].input_ids.tolist() == engine.requests[1].input_ids.tolist()


async def test_no_step_follows_the_end_of_the_program() -> None:
    kept: list[AgentContext] = []

    async def leaves(context: AgentContext) -> StopReason:
        await context.begin()
        kept.append(await context.spawn("Look."))
        return StopReason.FINISHED

    await loop_of(player(SUBMIT), program=leaves).run()
    with pytest.raises(MisuseError, match="the agent program has returned"):
        await kept[0].turn()
