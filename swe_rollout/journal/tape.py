"""Tape: the responses of one attempt, starting with those of an earlier life.

A repeated request gets its recorded response; a new one is carried out and its response recorded.
Requests match by the agent that asks, a digest of the request and, among equal ones, their order,
so overlapping calls need no fixed order. Engines take an episode's turns one at a time, so turns
match in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from swe_rollout.agent.tools.marks import ACTING
from swe_rollout.engine.errors import ContextOverflowError
from swe_rollout.errors import (
    EpisodeError,
    SandboxDestroyedError,
    SandboxError,
    SweRolloutError,
)
from swe_rollout.journal.entries import Answer, Cancelled, Entry, Refused
from swe_rollout.types.deadline import Deadline

STALLED_S: Final = 60.0
"""How long a new request waits for agents that still receive earlier responses."""
_FILE_ERRORS: Final[dict[str, type[OSError]]] = {
    error.__name__: error
    for error in (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
}
"""File errors that may be raised without an errno; all others have one."""
_T = TypeVar("_T")


class DivergedError(SweRolloutError):
    """A resumed program made a different request than before, so it starts over."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "the episode can't go on from its journal",
            why=why,
            fix="nothing: it begins anew. A program, tool or parser that does not do the same for "
            "the same answers can't be resumed",
        )


class Tape:
    """The responses of one attempt. Used from a single event loop."""

    def __init__(self, earlier: Sequence[Entry] = ()) -> None:
        """`earlier` holds the responses of an earlier life, in order."""
        self._turns = deque(entry for entry in earlier if _is_turn(entry.request))
        self._others = defaultdict[tuple[int, str], deque[Entry]](deque)
        for entry in earlier:
            if not _is_turn(entry.request):
                self._others[entry.agent, entry.request].append(entry)
        self._left = Counter(entry.agent for entry in earlier)
        self._given = asyncio.Event()
        if not earlier:
            self._given.set()
        self._noted: list[Entry] = []
        self._running = 0
        self.clock: Deadline | None = None
        """The episode's clock, once it has one."""
        self.diverged: DivergedError | None = None
        """Set once a request did not match, because the program may catch the error."""

    @property
    def is_replaying(self) -> bool:
        """Whether responses of an earlier life remain."""
        return self._left.total() > 0

    @property
    def is_quiet(self) -> bool:
        """Whether no sandbox operation is running."""
        return not self._running

    def take_noted(self) -> tuple[Entry, ...]:
        """Return the responses recorded since the last call."""
        noted, self._noted = tuple(self._noted), []
        return noted

    def require_end(self) -> None:
        """Raise DivergedError if a request did not match or responses are left over."""
        if self.diverged is None and self.is_replaying:
            self.diverge(f"the program ended, and {self._left.total()} answers were not asked for")
        if self.diverged is not None:
            raise self.diverged

    async def turn(self, request: str, ask: Callable[[], Awaitable[_T]], kind: type[Any]) -> _T:
        """Return the engine's response for a turn, recorded or new.

        `kind` is the class of the recorded response.
        """
        agent = ACTING.get()
        if self._turns:
            entry = self._turns[0]
            if (entry.agent, entry.request) != (agent, request):
                raise self.diverge("a turn was asked for with another prompt")
            self._turns.popleft()
            found: _T = await self._recorded(entry, kind)
            return found
        await self._rest_given(agent)
        return await self._ask(agent, request, ask, kind)

    async def call(self, request: str, ask: Callable[[], Awaitable[_T]], kind: type[Any]) -> _T:
        """Return the response to any other request, recorded or new."""
        agent = ACTING.get()
        if found := self._others.get((agent, request)):
            value: _T = await self._recorded(found.popleft(), kind)
            return value
        await self._rest_given(agent)
        with self._operation():
            return await self._ask(agent, request, ask, kind)

    async def _recorded(self, entry: Entry, kind: type[Any]) -> Any:
        answer = await self._give(entry)
        if not isinstance(answer, kind):
            raise self.diverge(f"a {type(answer).__name__} is no answer to this request")
        return answer.value()

    async def _give(self, entry: Entry) -> Answer:
        self._left[entry.agent] -= 1
        if not self.is_replaying:
            self._given.set()
        if self.clock is not None and entry.remaining_s is not None:
            self.clock.catch_up(elapsed_s=entry.elapsed_s, remaining_s=entry.remaining_s)
        match entry.answer:
            case Cancelled():
                # Whatever ended the wait then, such as a time limit, ends it again.
                await asyncio.Event().wait()
            case Refused():
                raise _error(entry.answer)
        return entry.answer

    async def _rest_given(self, agent: int) -> None:
        """Wait until all earlier responses are returned: new ones come after them."""
        if not self.is_replaying:
            return
        if self._left[agent] > 0:
            raise self.diverge(f"agent {agent} asked for something that it did not ask for before")
        before = self._left.total()
        while self.is_replaying:
            try:
                async with asyncio.timeout(STALLED_S):
                    await self._given.wait()
            except TimeoutError:
                if self._left.total() == before:
                    raise self.diverge("earlier answers were not asked for") from None
                before = self._left.total()

    async def _ask(
        self, agent: int, request: str, ask: Callable[[], Awaitable[_T]], kind: type[Any]
    ) -> _T:
        try:
            value = await ask()
        except asyncio.CancelledError:
            self._note(agent, request, Cancelled())
            raise
        except (SandboxError, ContextOverflowError, OSError) as error:
            self._note(agent, request, _refused(error))
            raise
        self._note(agent, request, kind.of(value))
        return value

    def _note(self, agent: int, request: str, answer: Answer) -> None:
        clock = self.clock
        elapsed_s, remaining_s = (clock.elapsed_s, clock.remaining_s) if clock else (0.0, None)
        self._noted.append(Entry(agent, request, answer, elapsed_s, remaining_s))

    @contextmanager
    def _operation(self) -> Iterator[None]:
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def diverge(self, why: str) -> DivergedError:
        """Record that a request did not match, and return the error for it."""
        self.diverged = self.diverged or DivergedError(why)
        return self.diverged


TURN: Final = "turn"
"""The kind of request that engines answer."""


def _is_turn(request: str) -> bool:
    return request.startswith(f"{TURN}:")


def _refused(error: EpisodeError | OSError) -> Refused:
    if isinstance(error, EpisodeError):
        destroyed = isinstance(error, SandboxDestroyedError)
        name = (SandboxDestroyedError if destroyed else type(error)).__name__
        return Refused(name, error.what, error.why, error.fix, error.retryable)
    if error.errno is None:
        return Refused(type(error).__name__, str(error))
    path = "" if error.filename is None else str(error.filename)
    return Refused(type(error).__name__, path, error.strerror or "", code=error.errno)


def _error(answer: Refused) -> Exception:
    if answer.code:
        return OSError(answer.code, answer.why, answer.what or None)
    if (kind := _FILE_ERRORS.get(answer.kind)) is not None:
        return kind(answer.what)
    if answer.kind == ContextOverflowError.__name__:
        return ContextOverflowError(answer.what, why=answer.why)
    was_destroyed = answer.kind == SandboxDestroyedError.__name__
    error = SandboxDestroyedError if was_destroyed else SandboxError
    return error(answer.what, why=answer.why, fix=answer.fix, retryable=answer.retryable)
