"""The tape: earlier answers by agent, digest and number, then new ones; anything else stops."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from swe_rollout.agent.tools.marks import ACTING
from swe_rollout.engine.errors import ContextOverflowError
from swe_rollout.errors import SandboxError
from swe_rollout.journal import tape as tape_module
from swe_rollout.journal.entries import Cancelled, Done, Entry, FileRead
from swe_rollout.journal.tape import DivergedError, Tape
from swe_rollout.types.deadline import Deadline


async def ask(
    tape: Tape, request: str, answer: bytes | BaseException = b"new", *, agent: int = 0
) -> bytes:
    """Ask as an agent does; the world answers, or raises."""

    async def world() -> bytes:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    token = ACTING.set(agent)
    call: Callable[..., Awaitable[bytes]] = tape.turn if request.startswith("turn:") else tape.call
    try:
        return await call(request, world, FileRead)
    finally:
        ACTING.reset(token)


def entry(request: str, data: bytes = b"old", agent: int = 0) -> Entry:
    return Entry(agent, request, FileRead(data))


async def test_equal_requests_get_their_answers_in_order_and_then_new_ones() -> None:
    tape = Tape([entry("exec:a", b"1"), entry("exec:b", b"2"), entry("exec:a", b"3")])
    assert [await ask(tape, f"exec:{name}") for name in "baa"] == [b"2", b"1", b"3"]
    assert not tape.is_replaying
    assert tape.take_noted() == ()
    assert await ask(tape, "exec:a") == b"new"
    assert [each.request for each in tape.take_noted()] == ["exec:a"]
    assert tape.take_noted() == ()
    tape.require_end()


async def test_agents_do_not_get_each_others_answers() -> None:
    tape = Tape([entry("exec:a", b"1", agent=1), entry("exec:a", b"0", agent=0)])
    assert await ask(tape, "exec:a", agent=0) == b"0"
    assert await ask(tape, "exec:a", agent=1) == b"1"


async def test_turns_are_answered_in_order_alone() -> None:
    tape = Tape([entry("turn:a"), entry("turn:b")])
    with pytest.raises(DivergedError, match="go on from its journal"):
        await ask(tape, "turn:b")
    with pytest.raises(DivergedError):
        tape.require_end()


async def test_a_new_request_of_an_agent_with_earlier_answers_left_has_diverged() -> None:
    tape = Tape([entry("exec:a")])
    with pytest.raises(DivergedError):
        await ask(tape, "exec:b")
    assert tape.diverged is not None


async def test_answers_that_nobody_asked_for_are_found_at_the_end() -> None:
    tape = Tape([entry("exec:a")])
    with pytest.raises(DivergedError) as caught:
        tape.require_end()
    assert "1 answers were not asked for" in caught.value.why


async def test_a_new_request_waits_until_all_earlier_answers_are_given() -> None:
    tape = Tape([entry("exec:a", agent=1)])
    new = asyncio.create_task(ask(tape, "exec:b", agent=2))
    await asyncio.sleep(0.01)
    assert not new.done()
    assert await ask(tape, "exec:a", agent=1) == b"old"
    assert await new == b"new"


async def test_a_wait_for_answers_that_nobody_asks_for_has_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tape_module, "STALLED_S", 0.01)
    tape = Tape([entry("exec:a", agent=1)])
    with pytest.raises(DivergedError):
        await ask(tape, "exec:b", agent=2)


async def test_an_answer_of_another_kind_has_diverged() -> None:
    tape = Tape([Entry(0, "exec:a", Done())])
    with pytest.raises(DivergedError, match="go on from its journal"):
        await ask(tape, "exec:a")
    assert tape.diverged is not None
    assert "a Done is no answer" in tape.diverged.why


async def test_a_wait_that_was_cancelled_is_not_answered_again() -> None:
    tape = Tape([Entry(0, "exec:a", Cancelled())])
    waiting = asyncio.create_task(ask(tape, "exec:a"))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/a"),
        OSError(errno.ENOSPC, "No space left on device", "/a"),
        PermissionError("/plain"),
        SandboxError("too large", why="a lot", fix="less", retryable=False),
        ContextOverflowError("full", why="of ids"),
    ],
)
async def test_an_error_that_is_an_answer_is_raised_again(error: Exception) -> None:
    first = Tape()
    with pytest.raises(type(error)):
        await ask(first, "exec:a", error)
    again = Tape(first.take_noted())
    with pytest.raises(type(error)) as caught:
        await ask(again, "exec:a")
    assert str(caught.value) == str(error)
    if isinstance(error, SandboxError) and isinstance(caught.value, SandboxError):
        assert (caught.value.why, caught.value.retryable) == (error.why, error.retryable)


async def test_a_bug_is_no_answer() -> None:
    tape = Tape()
    with pytest.raises(ZeroDivisionError):
        await ask(tape, "exec:a", ZeroDivisionError())
    assert tape.take_noted() == ()


async def test_a_wait_that_was_stopped_is_stopped_again() -> None:
    first = Tape()
    with pytest.raises(asyncio.CancelledError):
        await ask(first, "exec:a", asyncio.CancelledError())
    (noted,) = first.take_noted()
    assert noted.answer == Cancelled()


async def test_the_clock_goes_on_with_each_answer() -> None:
    tape = Tape([Entry(0, "exec:a", FileRead(b""), elapsed_s=30, remaining_s=5)])
    tape.clock = Deadline(100)
    await ask(tape, "exec:a")
    assert tape.clock.elapsed_s >= 30
    assert tape.clock.remaining_s <= 5
    await ask(tape, "exec:b")
    (noted,) = tape.take_noted()
    assert noted.elapsed_s >= 30
    assert noted.remaining_s is not None
    assert noted.remaining_s <= 5


async def test_it_is_quiet_while_no_operation_runs() -> None:
    tape, going = Tape(), asyncio.Event()

    async def world() -> bytes:
        await going.wait()
        return b""

    running = asyncio.create_task(tape.call("exec:a", world, FileRead))
    await asyncio.sleep(0)
    assert not tape.is_quiet
    going.set()
    await running
    assert tape.is_quiet
