"""What tools remember from call to call: of an episode in ToolState, of a sandbox in PerSandbox.

Tools themselves serve all episodes and hold nothing. An episode's state is made with it, reaches
every call in its `ToolContext`, and is dropped at the end of the episode.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, cast, runtime_checkable

import structlog

from swe_rollout.sandbox.base import Sandbox

log = structlog.get_logger()

_T = TypeVar("_T")


@runtime_checkable
class Closable(Protocol):
    """A state that holds something which must be given back."""

    async def aclose(self) -> None:
        """Give it back. Called once, also when the episode failed; the sandbox may be lost."""
        ...


class ToolState:
    """The states of one episode's tools, one for each class and key."""

    def __init__(self) -> None:
        self._states: dict[tuple[type, str], object] = {}

    def of(self, kind: type[_T], key: str = "") -> _T:
        """Return the state of this class; the first call makes it, without arguments.

        Tools that name the same class and key share it, as two editors share what can be undone.
        """
        if (kind, key) not in self._states:
            self._states[kind, key] = kind()
        return cast("_T", self._states[kind, key])

    async def aclose(self) -> None:
        """Close the states that can be closed, youngest first, and forget all of them.

        Never raises for one that fails: what the episode came to stands. Idempotent.
        """
        states, self._states = list(self._states.values()), {}
        for state in reversed(states):
            if isinstance(state, Closable):
                try:
                    await state.aclose()
                except Exception as error:  # noqa: BLE001 - a tool's own; the others are closed too
                    log.warning("tool_not_closed", kind=type(state).__name__, why=str(error))


class PerSandbox(Generic[_T]):
    """One state for each sandbox, made when it is first asked for.

    Sandboxes are told apart by identity: one may compare equal to another.
    """

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._entries: dict[int, tuple[weakref.ref[Sandbox], _T]] = {}

    def __len__(self) -> int:
        """Count the sandboxes that are still there."""
        return len(self._entries)

    def of(self, sandbox: Sandbox) -> _T:
        """Return the state of a sandbox."""
        key = id(sandbox)
        known = self._entries.get(key)
        if known is None or known[0]() is not sandbox:
            gone = weakref.ref(sandbox, lambda _: self._entries.pop(key, None))
            known = self._entries[key] = (gone, self._make())
        return known[1]
