"""Every way an episode can end, in a real sandbox; and the limits each of them keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from swe_rollout.agent.first_prompt import PromptTooLongError
from swe_rollout.agent.prompts import Prompts
from swe_rollout.errors import Boundary
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.limits import CutTurns, Limits
from swe_rollout.tokens.log import SegmentKind
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import CallStatus
from unit.agent.agent_parts import BROKEN, RENDERER, SUBMIT, TOOLS, UNCLOSED, bash, loop_of, player
from unit.agent.tools.conftest import started
from waits import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sandbox]:
    async with started(tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox


async def test_an_unclosed_call_is_answered_and_does_not_finish_the_episode(
    sandbox: Sandbox,
) -> None:
    loop = loop_of(player(UNCLOSED, SUBMIT), sandbox=sandbox)

    assert await loop.run() is StopReason.SUBMITTED
    assert loop.turns[0].tool_calls[0].status is CallStatus.UNCLOSED
    assert "not closed by </tool_call>" in loop.turns[0].observations[0].text
    assert "not closed by </tool_call>" in RENDERER.decode(loop.log.ids)


async def test_turns_in_a_row_that_do_not_parse_end_the_episode(sandbox: Sandbox) -> None:
    loop = loop_of(
        player(BROKEN, UNCLOSED, bash("ls"), BROKEN, BROKEN + UNCLOSED, BROKEN, SUBMIT),
        sandbox=sandbox,
    )

    assert await loop.run() is StopReason.FORMAT_ERRORS
    assert len(loop.turns) == 6
    assert all(turn.observations for turn in loop.turns)


async def test_a_turn_with_one_good_call_is_no_format_error(sandbox: Sandbox) -> None:
    loop = loop_of(
        player(BROKEN + bash("ls")), sandbox=sandbox, limits=Limits(turns=4, format_errors=1)
    )

    assert await loop.run() is StopReason.TURN_LIMIT


async def test_the_turn_limit_leaves_the_last_observation_out_of_the_log(sandbox: Sandbox) -> None:
    engine = player(bash("ls"))
    loop = loop_of(engine, sandbox=sandbox, limits=Limits(turns=3))

    assert await loop.run() is StopReason.TURN_LIMIT
    assert len(engine.requests) == len(loop.turns) == 3
    assert loop.turns[-1].observations
    assert loop.log.segments[-1].kind is SegmentKind.SAMPLED


async def test_identical_turns_end_the_episode_when_that_is_asked_for(sandbox: Sandbox) -> None:
    turns = (bash("a"), bash("b"), bash("b"), bash("b"), SUBMIT)

    assert await loop_of(player(*turns), sandbox=sandbox).run() is StopReason.SUBMITTED
    loop = loop_of(player(*turns), sandbox=sandbox, limits=Limits(repeated_turns=3))
    assert await loop.run() is StopReason.REPEATED
    assert len(loop.turns) == 4


async def test_a_cut_generation_is_kept_and_nothing_in_it_runs(sandbox: Sandbox) -> None:
    long = bash("touch executed") + " and more" * 50
    loop = loop_of(player(long), sandbox=sandbox, limits=Limits(max_new_tokens=60))

    assert await loop.run() is StopReason.TOKEN_LIMIT
    assert not (await sandbox.exec("ls executed")).ok
    assert (loop.turns[0].completion_tokens, loop.turns[0].tool_calls) == (60, ())
    assert loop.log.sampled == 60


async def test_a_generation_is_clipped_to_the_room_in_the_context(sandbox: Sandbox) -> None:
    first = Prompts().messages("It fails.", sandbox.workdir)
    prompt = len(RENDERER.prompt(first, TOOLS.specs).ids)
    engine = player("long " * 100)
    loop = loop_of(engine, sandbox=sandbox, limits=Limits(context_tokens=prompt + 11))

    assert await loop.run() is StopReason.CONTEXT_FULL
    assert engine.requests[0].max_new_tokens == 10
    assert loop.log.sampled == 10


@pytest.mark.parametrize("room", [0, 1])
async def test_a_prompt_that_fills_the_context_is_the_tasks_failure_and_never_sent(
    sandbox: Sandbox, room: int
) -> None:
    first = Prompts().messages("It fails.", sandbox.workdir)
    prompt = len(RENDERER.prompt(first, TOOLS.specs).ids)
    engine = player(SUBMIT)
    loop = loop_of(engine, sandbox=sandbox, limits=Limits(context_tokens=prompt + room))

    with pytest.raises(PromptTooLongError, match=f"it has {prompt} tokens") as raised:
        await loop.run()
    assert raised.value.boundary is Boundary.DATASET
    assert not raised.value.retryable
    assert "spec.limits.contextTokens" in raised.value.fix
    assert (engine.requests, loop.turns) == ([], [])
    assert len(loop.log) == prompt


async def test_an_observation_that_does_not_fit_ends_the_episode_and_stays_out_of_the_log(
    sandbox: Sandbox,
) -> None:
    engine = player(bash("yes many words | head -1400"))
    loop = loop_of(engine, sandbox=sandbox, limits=Limits(context_tokens=3000))

    assert await loop.run() is StopReason.CONTEXT_FULL
    assert len(engine.requests) == len(loop.turns) == 1
    assert loop.log.segments[-1].kind is SegmentKind.SAMPLED


async def test_no_request_could_ever_overflow_the_context(sandbox: Sandbox) -> None:
    engine = player(bash("echo some words"))
    limits = Limits(context_tokens=2500, max_new_tokens=300)

    assert await loop_of(engine, sandbox=sandbox, limits=limits).run() is StopReason.CONTEXT_FULL
    for request in engine.requests:
        assert len(request.input_ids) + request.max_new_tokens < limits.context_tokens


async def test_time_ends_an_episode_in_the_middle_of_a_generation(sandbox: Sandbox) -> None:
    engine = player(SUBMIT, pause_s=30)
    loop = loop_of(engine, sandbox=sandbox, limits=Limits(episode_seconds=0.05))

    assert await asyncio.wait_for(loop.run(), PATIENCE_S) is StopReason.TIME_LIMIT
    assert loop.turns == []


async def test_time_ends_an_episode_between_calls_and_bounds_each_of_them(
    sandbox: Sandbox,
) -> None:
    engine = player(bash("sleep 600") + bash("touch second"))
    loop = loop_of(engine, sandbox=sandbox, limits=Limits(episode_seconds=2))

    assert await loop.run() is StopReason.TIME_LIMIT
    assert len(loop.turns[0].tool_calls) == 2
    assert [observation.timed_out for observation in loop.turns[0].observations] == [True]
    assert loop.turns[0].tools_s < 300


async def test_a_tool_has_its_own_time_where_the_episode_has_more(sandbox: Sandbox) -> None:
    loop = loop_of(
        player(bash("sleep 20"), SUBMIT), sandbox=sandbox, limits=Limits(tool_seconds=0.5)
    )

    assert await loop.run() is StopReason.SUBMITTED
    assert "killed after 0.5 s" in loop.turns[0].observations[0].text


@pytest.mark.parametrize("opening", ["", "<think>\n"])
async def test_a_cut_turn_can_be_answered_so_that_the_episode_goes_on(
    sandbox: Sandbox, opening: str
) -> None:
    long = opening + bash("touch executed") + " and more" * 50
    limits = Limits(max_new_tokens=60, cut_turns=CutTurns.ANSWER, format_errors=9, turns=3)
    loop = loop_of(player(long), sandbox=sandbox, limits=limits)

    assert await loop.run() is StopReason.TURN_LIMIT
    assert not (await sandbox.exec("ls executed")).ok
    assert [turn.completion_tokens for turn in loop.turns] == [60, 60, 60]
    assert loop.log.sampled == 180
    assert [call.status for turn in loop.turns for call in turn.tool_calls] == [
        CallStatus.UNCLOSED
    ] * 3
    delta = next(s for s in loop.log.segments if s.kind is SegmentKind.DELTA)
    said = RENDERER.decode(loop.log.ids[delta.start : delta.end])
    closing = "\n</think>\n\n" if opening else ""
    assert said.startswith(f"{closing}<|im_end|>\n<|im_start|>user\n<tool_response>\nthe turn was")
