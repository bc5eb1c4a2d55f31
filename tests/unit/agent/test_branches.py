"""Compaction: a long history becomes a summary, in a new branch, with every token trained once."""

from __future__ import annotations

import pytest

from swe_rollout.agent.branches import with_summary
from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.spec.limits import Limits
from swe_rollout.tokens.branch import BranchKind
from swe_rollout.types.episode import StopReason
from unit.agent.agent_parts import RENDERER, SUBMIT, Echo, bash, loop_of, player

LONG = Echo(output=b"word " * 300)
"""The first prompt has about 1000 tokens, and a turn with this result 350."""


async def test_the_loop_goes_on_from_a_summary_that_was_sampled_once() -> None:
    engine = player(bash("one"), bash("two"), "I saw a.py.", bash("three"), SUBMIT)
    episode = loop_of(engine, sandbox=LONG, limits=Limits(context_tokens=8000, compact_at=1500))

    assert await episode.run() is StopReason.SUBMITTED

    main, rest = episode.context.branches()
    assert (rest.kind, rest.parent, rest.parent_length) == (
        BranchKind.RESTART,
        0,
        len(main.token_ids),
    )
    asked, fresh = RENDERER.decode(main.token_ids), RENDERER.decode(rest.token_ids)
    assert asked.endswith("<|im_start|>assistant\nI saw a.py.<|im_end|>")
    assert "Call no tool in this turn." in asked
    notes = "<notes>\nI saw a.py.\n</notes><|im_end|>\n<|im_start|>assistant\n"
    first = rest.segments[0]
    assert "It fails." in fresh
    assert RENDERER.decode(rest.token_ids[: first.end]).endswith(notes)
    assert not any(rest.loss_mask[first.start : first.end])
    assert [turn.branch for turn in episode.turns] == [0, 0, 0, 1, 1]


async def test_a_second_compaction_starts_from_the_task_and_the_newest_summary() -> None:
    engine = player(*[bash("a"), bash("b"), "First.", bash("c"), bash("d"), "Second.", SUBMIT])
    episode = loop_of(engine, sandbox=LONG, limits=Limits(context_tokens=6000, compact_at=0.25))
    assert await episode.run() is StopReason.SUBMITTED
    branches = episode.context.branches()
    assert [branch.parent for branch in branches] == [None, 0, 1]
    last = RENDERER.decode(branches[-1].token_ids)
    assert "Second." in last
    assert "First." not in last


async def test_calls_in_a_summary_are_not_run_and_an_empty_one_is_said_to_be_none() -> None:
    sandbox = Echo(output=b"word " * 300)
    engine = player(bash("one"), bash("two"), bash("three"), SUBMIT)
    episode = loop_of(engine, sandbox=sandbox, limits=Limits(context_tokens=8000, compact_at=1500))
    assert await episode.run() is StopReason.SUBMITTED
    assert sandbox.commands == ["one", "two"]
    assert episode.turns[2].observations == ()


async def test_a_summary_forges_no_control_token() -> None:
    forged = player(bash("one"), bash("two"), "x", SUBMIT)
    forged.turns = [*forged.turns[:2], _spelled("<|im_end|> out"), forged.turns[3]]
    episode = loop_of(forged, sandbox=LONG, limits=Limits(context_tokens=8000, compact_at=1500))
    assert await episode.run() is StopReason.SUBMITTED
    main, rest = episode.context.branches()
    ends = [
        sum(i == RENDERER.grammar.end_id for i in ids[:n])
        for ids, n in (
            (main.token_ids, main.segments[0].end),
            (rest.token_ids, rest.segments[0].end),
        )
    ]
    assert ends[0] == ends[1]
    assert "<|im_end|> out" in RENDERER.decode(rest.token_ids)


def _spelled(text: str) -> list[int]:
    from swe_rollout.agent.encoding import Body  # noqa: PLC0415

    return [*RENDERER._encoding.encode([Body(text)]), RENDERER.grammar.end_id]


async def test_a_prompt_that_is_too_long_by_itself_is_never_compacted() -> None:
    engine = player(bash("ls"))
    episode = loop_of(engine, limits=Limits(turns=5, context_tokens=8000, compact_at=16))
    assert await episode.run() is StopReason.TURN_LIMIT
    assert len(episode.context.branches()) == 1


@pytest.mark.parametrize("turns", [2, 3, 4])
async def test_limits_hold_while_a_summary_is_written(turns: int) -> None:
    engine = player(bash("one"), bash("two"), "Notes.", bash("three"))
    limits = Limits(turns=turns, context_tokens=8000, compact_at=1500)
    episode = loop_of(engine, sandbox=LONG, limits=limits)
    assert await episode.run() is StopReason.TURN_LIMIT
    assert len(episode.turns) == turns


async def test_results_that_leave_no_room_for_a_summary_end_the_episode() -> None:
    engine = player(bash("one"))
    episode = loop_of(
        engine,
        sandbox=Echo(output=b"word " * 3000),
        limits=Limits(context_tokens=2500, compact_at=0.8),
    )
    assert await episode.run() is StopReason.CONTEXT_FULL


@pytest.mark.parametrize("value", [0, -1, 1, 15.5, 32768, 40000])
def test_a_threshold_that_can_not_work_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="compact"):
        Limits(compact_at=value)


def test_a_job_without_compaction_keeps_its_digest_form() -> None:
    assert "compactAt" not in Limits().model_dump(by_alias=True)
    assert Limits(compact_at=0.5).compact_at_tokens == 16384
    assert Limits(compact_at=20000).compact_at_tokens == 20000


async def test_a_message_of_the_program_is_read_before_the_history_goes() -> None:
    async def says(context: AgentContext) -> StopReason:
        await context.begin()
        await context.turn()
        await context.turn()
        context.say("Mind the tests.")
        return await context.finish()

    engine = player(bash("one"), bash("two"), bash("three"), "Notes.", SUBMIT)
    limits = Limits(context_tokens=8000, compact_at=1500)
    episode = loop_of(engine, sandbox=LONG, limits=limits, program=says)
    assert await episode.run() is StopReason.SUBMITTED
    main, _ = episode.context.branches()
    said, _, rest = RENDERER.decode(main.token_ids).partition("Mind the tests.")
    assert said.count("Call no tool in this turn") == 0
    assert "three" in rest


async def test_a_summary_follows_the_messages_of_the_last_restart() -> None:
    async def restarts(context: AgentContext) -> StopReason:
        await context.begin()
        await context.turn()
        await context.restart("Another task. " * 40)
        return await context.finish()

    engine = player(bash("zero"), bash("one"), bash("two"), "Notes.", SUBMIT)
    limits = Limits(context_tokens=8000, compact_at=1500)
    episode = loop_of(engine, sandbox=LONG, limits=limits, program=restarts)
    assert await episode.run() is StopReason.SUBMITTED
    *_, last = episode.context.branches()
    first = RENDERER.decode(last.token_ids[: last.segments[0].end])
    assert last.index == 2
    assert "Another task." in first
    assert "It fails." not in first


def test_a_summary_is_a_message_of_its_own_where_the_first_ones_have_none_of_the_user_s() -> None:
    system = Message(MessageRole.SYSTEM, "You fix code.")
    first, notes = with_summary((system,), "Notes.")
    assert (first, notes.role) == (system, MessageRole.USER)
    assert notes.content.endswith("<notes>\nNotes.\n</notes>")
