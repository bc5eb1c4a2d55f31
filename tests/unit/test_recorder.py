"""The record of an attempt: all branches of its agents, whatever ended it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from swe_rollout.agent.context import AgentContext
from swe_rollout.context import Attempt
from swe_rollout.errors import EngineError
from swe_rollout.recorder import Recorder
from swe_rollout.types.episode import StopReason
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import from_json, to_json
from unit.agent.agent_parts import EPISODE, SUBMIT, Played, bash, loop_of, player

ATTEMPT = Attempt(EPISODE, Instance(instance_id="task", problem_statement="", image="i"), 1)


def recorder() -> Recorder:
    context: Any = SimpleNamespace(
        policy=lambda _: "played",
        sampling_for=lambda _: SimpleNamespace(seed=0),
        agent=SimpleNamespace(renderer=SimpleNamespace(path=None)),
        spec_digest="0",
        extensions=(),
        fork=None,
    )
    return Recorder(ATTEMPT, context)


def record_of(played: Played) -> Trajectory:
    record = recorder()
    record.agent = played.context
    trajectory = record.trajectory()
    assert from_json(to_json(trajectory)) == trajectory
    return trajectory


async def delegates(context: AgentContext) -> StopReason:
    await context.begin()
    await context.turn()
    child = await context.spawn("Look.")
    await child.turn()
    return await context.finish()


async def test_the_record_has_all_branches_and_the_turns_of_all_agents() -> None:
    engine = player(bash("one"), bash("two"), SUBMIT)
    played = loop_of(engine, program=delegates)
    await played.run()
    record = record_of(played)
    assert record.samples == played.context.branches()
    assert [turn.branch for turn in record.turns] == [0, 1, 0]
    assert record.sampled_count == engine.sampled
    assert record.schema == 2


async def talks(context: AgentContext) -> StopReason:
    await context.begin("Begin.")
    await context.turn()
    context.say("Go on.")
    return await context.finish()


async def test_the_record_has_all_that_the_program_wrote_as_text() -> None:
    played = loop_of(player(bash("one"), SUBMIT), program=talks)
    await played.run()
    record = record_of(played)
    assert [(line.role, line.branch) for line in record.prompts] == [("system", 0), ("user", 0)]
    assert record.prompts[1].text == "Begin."
    assert [turn.message for turn in record.turns] == ["", "Go on."]


async def test_what_a_sub_agent_sampled_before_a_failure_stays() -> None:
    engine = player(bash("one"), bash("two"), SUBMIT)

    def fail(_: object) -> None:
        if len(engine.requests) == 3:
            raise EngineError("the engine is gone")

    engine.before = fail
    played = loop_of(engine, program=delegates)
    with pytest.raises(EngineError):
        await played.run()
    record = record_of(played)
    assert len(record.turns) == 2
    assert record.sampled_count == engine.sampled > 0


async def test_an_episode_of_one_branch_keeps_the_first_schema() -> None:
    played = loop_of(player(bash("one"), SUBMIT))
    await played.run()
    record = record_of(played)
    assert (record.schema, record.branches) == (1, ())
    assert record.token_ids == tuple(played.log.ids)


def test_an_attempt_without_an_agent_has_no_tokens() -> None:
    assert recorder().trajectory().token_count == 0
