"""Replacing streams: when each one is ended inside the sandbox, that is its own doing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from swe_rollout.errors import SandboxDestroyedError, SandboxError
from swe_rollout.sandbox.session import connection as module
from swe_rollout.sandbox.session.channel import Channel, RelayEndedError, StreamLostError
from swe_rollout.sandbox.session.connection import Handshake, replace_connection


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


async def test_two_streams_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    error = await replaced(monkeypatch, RelayEndedError, RelayEndedError, reattach_s=0.0)
    assert not isinstance(error, SandboxDestroyedError)
