"""State of tools between calls: per episode in ToolState, per sandbox in PerSandbox.

Tools themselves are stateless and serve all episodes. An episode's state is created with it, passed
to every call in its `ToolContext`, and dropped at the end of the episode.
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
    """A state with resources that must be released."""

    async def aclose(self) -> None:
        """Release the resources. Called once, even after a failure; the sandbox may be lost."""
        ...


class ToolState:
    """The states of one episode's tools, one for each class and key."""

    def __init__(self) -> None:
        self._states: dict[tuple[type, str], object] = {}

    def of(self, kind: type[_T], key: str = "") -> _T:
        """Return the state of this class, which the first call creates without arguments.

        Tools that use the same class and key share it, as two editors share their undo history.
        """
        if (kind, key) not in self._states:
            self._states[kind, key] = kind()
        return cast("_T", self._states[kind, key])

    async def aclose(self) -> None:
        """Close the closable states, youngest first, and drop all states.

        A state that fails to close raises nothing: the episode's outcome stands. Idempotent.
        """
        states, self._states = list(self._states.values()), {}
        for state in reversed(states):
            if isinstance(state, Closable):
                try:
                    await state.aclose()
                except Exception as error:  # noqa: BLE001 - a tool's own; the others are closed too
                    log.warning("tool_not_closed", kind=type(state).__name__, why=str(error))


class PerSandbox(Generic[_T]):
    """One state for each sandbox, created on first use.

    Sandboxes are distinguished by identity, because two may compare equal.
    """

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._entries: dict[int, tuple[weakref.ref[Sandbox], _T]] = {}

    def __len__(self) -> int:
        """Return the number of sandboxes that still exist."""
        return len(self._entries)

    def of(self, sandbox: Sandbox) -> _T:
        """Return the state of a sandbox."""
        key = id(sandbox)
        known = self._entries.get(key)
        if known is None or known[0]() is not sandbox:
            gone = weakref.ref(sandbox, lambda _: self._entries.pop(key, None))
            known = self._entries[key] = (gone, self._make())
        return known[1]
