"""Replacing streams: when each one is ended inside the sandbox, that is its own doing."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Sequence

import pytest

from swe_rollout.errors import SandboxDestroyedError, SandboxError
from swe_rollout.sandbox.session import connection as module
from swe_rollout.sandbox.session.channel import Channel, RelayEndedError, StreamLostError
from swe_rollout.sandbox.session.connection import (
    MOST_S,
    Handshake,
    OutageClocks,
    replace_connection,
)
from swe_rollout.types.deadline import Deadline


class Refusing:
    """An opener whose streams all end, the last way again and again."""

    def __init__(self, ways: Sequence[type[StreamLostError]]) -> None:
        self._ways = list(ways)

    async def open(self) -> Channel:
        way = self._ways.pop(0) if len(self._ways) > 1 else self._ways[0]
        raise way("the stream ended", why="exit code 137")

    async def close(self) -> None:
        pass


async def replaced(
    monkeypatch: pytest.MonkeyPatch,
    first: type[StreamLostError],
    *then: type[StreamLostError],
    reattach_s: float = 0.5,
) -> SandboxError:
    monkeypatch.setattr(module, "REATTACH_S", reattach_s)
    with pytest.raises(SandboxError) as caught:
        await replace_connection(Refusing(then), Handshake(), first("lost", why="exit code 137"))
    return caught.value


async def test_streams_that_all_end_in_the_sandbox_are_evidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Issue 16, point 4: a process that kills every relay does not dodge the grade."""
    error = await replaced(monkeypatch, RelayEndedError, RelayEndedError)
    assert isinstance(error, SandboxDestroyedError)
    assert "the last one: exit code 137" in error.why


@pytest.mark.parametrize(
    "losses",
    [
        (StreamLostError, RelayEndedError),
        (RelayEndedError, StreamLostError),
        (RelayEndedError, StreamLostError, RelayEndedError),
        (RelayEndedError, RelayEndedError, StreamLostError, RelayEndedError),
    ],
)
async def test_a_stream_that_the_way_there_lost_leaves_doubt(
    monkeypatch: pytest.MonkeyPatch, losses: tuple[type[StreamLostError], ...]
) -> None:
    error = await replaced(monkeypatch, *losses)
    assert not isinstance(error, SandboxDestroyedError)
    assert error.retryable


@pytest.mark.parametrize("failures", [1, 2, 6])
async def test_a_lost_stream_is_replaced_at_once_and_then_after_short_pauses(
    monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """What a resumed turn waits for: the pauses that are asked for, whatever the machine's speed.

    None before the first stream; then 50 ms, doubled each time.
    """
    pauses: list[float] = []

    async def nap(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", nap)

    class Gone(Refusing):
        async def open(self) -> Channel:
            if len(pauses) == failures:
                raise SandboxError("the sandbox is gone")
            return await super().open()

    lost = StreamLostError("lost", why="x")
    with pytest.raises(SandboxError, match="gone"):
        await replace_connection(Gone([StreamLostError]), Handshake(), lost)
    assert pauses == [0.05 * 2**number for number in range(failures)]


async def test_an_opener_that_breaks_leaves_doubt_and_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with too many open files: an error of any other kind would end nobody's request."""

    class Broken(Refusing):
        async def open(self) -> Channel:
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(module, "REATTACH_S", 0.1)
    with pytest.raises(StreamLostError, match="Too many open files"):
        await replace_connection(Broken([]), Handshake(), StreamLostError("lost", why="x"))


async def test_two_streams_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    error = await replaced(monkeypatch, RelayEndedError, RelayEndedError, reattach_s=0.0)
    assert not isinstance(error, SandboxDestroyedError)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in seconds, as the test says."""
    moment = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    return moment


def test_a_clock_stands_while_it_waits_and_there_is_no_stream(now: list[float]) -> None:
    clocks, clock = OutageClocks(), Deadline(10)
    with clocks.waiting(clock):
        now[0] += 1
        with clocks.stopped():
            now[0] += 30
        now[0] += 1
    with clocks.stopped():
        now[0] += 1  # nothing was asked of the sandbox
    assert clock.remaining_s == pytest.approx(7)


def test_who_asks_during_an_outage_or_gives_up_in_it_loses_no_time_either(
    now: list[float],
) -> None:
    clocks, early, late = OutageClocks(), Deadline(10), Deadline(10)
    with clocks.stopped():
        now[0] += 1
        with clocks.waiting(early), clocks.waiting(late):
            now[0] += 5
        now[0] += 2
    assert (early.remaining_s, late.remaining_s) == pytest.approx((7, 7))


def test_two_calls_of_one_episode_stop_its_clock_once(now: list[float]) -> None:
    clocks, clock = OutageClocks(), Deadline(10)
    with clocks.waiting(clock), clocks.waiting(clock), clocks.stopped():
        now[0] += 5
    assert clock.remaining_s == pytest.approx(10)


def test_a_policy_that_disturbs_its_streams_gains_no_time_without_end(now: list[float]) -> None:
    clocks, clock = OutageClocks(), Deadline(1e6)
    with clocks.waiting(clock):
        for _ in range(1000):
            with clocks.stopped():
                now[0] += 60
    assert clock.remaining_s == pytest.approx(1e6 - 1000 * 60 + MOST_S)


def test_without_an_episode_nothing_is_stopped() -> None:
    with OutageClocks().waiting(None):
        pass
