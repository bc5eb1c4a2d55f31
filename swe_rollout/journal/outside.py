"""Journal an agent that runs in the sandbox: its requests, each durable before it is answered.

Its program can't be run again on what it was told. So its sandbox has to live on, with the program
in it, and the journal is never behind what the program has seen.
"""

from __future__ import annotations

from swe_rollout.journal.entries import Entry, FileRead, digest_of
from swe_rollout.journal.tape import Tape
from swe_rollout.journal.wrappers import Barriers
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.episode import StopReason

_ASKED = "asked"
_STOPPED = "stopped"


class OutsideJournal:
    """The tape of such an agent. See `Outside`."""

    def __init__(
        self, tape: Tape, writer: Barriers, sandbox: Sandbox, entries: tuple[Entry, ...]
    ) -> None:
        """`entries` are those of earlier lives."""
        self._tape, self._writer, self.sandbox = tape, writer, sandbox
        self.is_running = bool(entries)
        self.asked = _noted(entries, _ASKED)
        stops = _noted(entries, _STOPPED)
        self.stopped = StopReason(stops[0].decode()) if stops else None
        self._replayed = len(self.asked)

    async def note(self, request: bytes) -> None:
        await self._note(_ASKED, request)
        if self._replayed:
            self._replayed -= 1
            return
        await self._flush()

    async def stop(self, reason: StopReason) -> StopReason:
        noted = await self._note(_STOPPED, reason.value.encode())
        if self.stopped is None:
            await self._flush()
        return StopReason(noted.decode())

    async def _flush(self) -> None:
        """Return once all that was noted is durable."""
        await self._writer.before_turn()
        await self._writer.before_call()

    async def _note(self, kind: str, data: bytes) -> bytes:
        async def same() -> bytes:
            return data

        return await self._tape.call(digest_of(kind, data), same, FileRead)


class AfterTurns:
    """Barriers that write nothing by themselves: a turn is written before it is answered."""

    async def before_turn(self) -> None:
        """Do nothing: all earlier turns are durable."""

    async def before_call(self) -> None:
        """Do nothing: what happens in the sandbox is not journaled."""


def _noted(entries: tuple[Entry, ...], kind: str) -> tuple[bytes, ...]:
    return tuple(
        entry.answer.data
        for entry in entries
        if isinstance(entry.answer, FileRead) and entry.request.startswith(f"{kind}:")
    )
