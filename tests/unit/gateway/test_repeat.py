"""A harness whose worker died: the next one has the same conversations, from the journal alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from swe_rollout.agent.outside import Outside
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.tools.base import Toolbox
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.gateway.conversations import Conversations
from swe_rollout.gateway.harness import repeat
from swe_rollout.gateway.nodes import EndedError
from swe_rollout.gateway.values import Answer, Request
from swe_rollout.journal.entries import Chunk, Entry, compress, decode, encode
from swe_rollout.journal.outside import AfterTurns, OutsideJournal
from swe_rollout.journal.tape import DivergedError, Tape
from swe_rollout.journal.wrappers import Taped
from swe_rollout.sandbox.wrapped import AbsentSandbox
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import Generation
from unit.agent.agent_parts import EPISODE, RENDERER, Aborting, Player, bash, player
from unit.agent.agent_parts import encode as encode_text
from unit.gateway.test_conversations import ASKED, going_on, told


@dataclass
class Store:
    """Where chunks are written, turn by turn."""

    tape: Tape
    chunks: list[bytes] = field(default_factory=list)
    is_gone: bool = False
    written: asyncio.Event = field(default_factory=asyncio.Event)

    async def before_turn(self) -> None:
        self.written.set()
        if self.is_gone:
            await asyncio.Event().wait()
        self.chunks.append(compress(encode(Chunk("writer", entries=self.tape.take_noted()))))

    async def before_call(self) -> None:
        """Every write is done at once."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(entry for chunk in self.chunks for entry in decode(chunk).entries)


class Life:
    """One life of an attempt, on the journal of those before."""

    def __init__(self, engine: Player, entries: Sequence[Entry] = ()) -> None:
        self.tape = Tape(entries)
        self.store = Store(self.tape)
        self.journal: Outside = OutsideJournal(
            self.tape, self.store, AbsentSandbox("/", RuntimeError), tuple(entries)
        )
        parts = AgentParts(engine, RENDERER, Toolbox([]), Prompts(), Limits())
        taped = Taped(self.tape, AfterTurns()).parts(parts)
        self.played = Conversations(taped, EPISODE, Sampling(), journal=self.journal)
        self.tape.clock = self.played.state.deadline


async def _all(life: Life) -> tuple[list[Request], list[Answer]]:
    """Ask for a line of three turns, a branch from its first, and a second prompt."""
    one = await life.played.answer(ASKED)
    second = going_on(ASKED, told(one, "a.py"))
    two = await life.played.answer(second)
    third = going_on(second, told(two, "x = 1", message="Hurry."))
    fork = going_on(ASKED, told(one, "b.py"))
    other = Request(ASKED.first[1:], ASKED.turns, ASKED.tools, 1 << 99, ("never",), 0, ("a field",))
    rest = [third, fork, other]
    return [ASKED, second, *rest], [one, two, *[await life.played.answer(r) for r in rest]]


SCRIPT = (bash("ls"), bash("cat a"), "Three.", "Fork.", bash("rm a"))


@pytest.mark.parametrize("durable", range(6))
async def test_the_next_worker_goes_on_wherever_the_one_before_died(durable: int) -> None:
    whole = Life(player(*SCRIPT))
    requests, answers = await _all(whole)
    assert len(whole.store.chunks) == len(answers)
    left = tuple(e for chunk in whole.store.chunks[:durable] for e in decode(chunk).entries)
    engine = player(*SCRIPT)
    again = Life(engine, left)
    assert await repeat(again.played, again.journal) is None
    # The last answer that was durable may not have been delivered.
    asked = max(durable - 1, 0)
    assert [await again.played.answer(each) for each in requests[asked:]] == answers[asked:]
    assert again.played.branches() == whole.played.branches()
    assert again.played.state.differences == whole.played.state.differences
    assert len(again.store.chunks) == len(engine.requests) == len(answers) - durable
    again.tape.require_end()


async def test_conversations_at_once_are_in_the_order_of_their_turns() -> None:
    engine, began, goes_on = player(*SCRIPT), asyncio.Event(), asyncio.Event()
    life, answer = Life(engine), engine.generate

    async def waiting(request: GenerateRequest) -> Generation:
        if request.turn:
            began.set()
            await goes_on.wait()
        return await answer(request)

    engine.generate = waiting  # type: ignore[method-assign]
    one, other = await life.played.answer(ASKED), Request(ASKED.first[1:])
    asked = (going_on(ASKED, told(one, "a.py")), other)
    asking = asyncio.gather(*map(life.played.answer, asked))
    await began.wait()
    # Prompts are rendered one after the other: that of `other` is there then, and has no turn.
    await life.played.count(other)
    goes_on.set()
    await asking
    assert [(n.turn, n.branch) for n in life.played.state.differences] == [(2, 1)]
    again = Life(player(), life.store.entries)
    await repeat(again.played, again.journal)
    assert again.played.state.differences == life.played.state.differences
    assert again.played.branches() == life.played.branches()


async def test_no_answer_leaves_before_it_is_durable() -> None:
    life = Life(player(*SCRIPT))
    life.store.is_gone = True
    asking = asyncio.create_task(life.played.answer(ASKED))
    await life.store.written.wait()
    assert not asking.done()
    asking.cancel()
    await life.played.close()


async def test_what_stopped_an_earlier_life_stops_the_next_one() -> None:
    first = Life(player(*SCRIPT))
    await first.played.answer(ASKED)
    assert await first.journal.stop(StopReason.TURN_LIMIT) is StopReason.TURN_LIMIT
    again = Life(player(), first.store.entries)
    assert await repeat(again.played, again.journal) is StopReason.TURN_LIMIT


async def test_a_turn_that_a_limit_cut_ends_the_next_life_too() -> None:
    """The first life died before it noted why it had stopped."""
    engine = Aborting([encode_text("One two three four.")])
    first = Life(engine)
    deadline = first.played.state.deadline

    def expire(_: object) -> None:
        if engine.requests[1:]:
            deadline.catch_up(elapsed_s=1e6, remaining_s=0.0)

    engine.before = expire
    with pytest.raises(EndedError, match="time_limit"):
        await first.played.answer(ASKED)
    again = Life(player(), first.store.entries)
    assert await repeat(again.played, again.journal) is StopReason.TIME_LIMIT
    assert again.played.branches() == first.played.branches()
    assert Life(player(), (*first.store.entries, *again.store.entries)).journal.stopped


async def test_a_journal_that_was_tampered_with_is_not_gone_on_from() -> None:
    first = Life(player(*SCRIPT))
    await _all(first)
    again = Life(player(*SCRIPT), first.store.entries[2:])
    with pytest.raises(DivergedError):
        await repeat(again.played, again.journal)
