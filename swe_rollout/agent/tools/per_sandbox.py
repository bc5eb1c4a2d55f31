"""PerSandbox: what a tool remembers of a sandbox, for as long as there is the sandbox."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from swe_rollout.sandbox.base import Sandbox

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    sandbox: weakref.ref[Sandbox]
    state: T


class PerSandbox(Generic[T]):
    """One state for each sandbox, made when it is first asked for.

    Sandboxes are told apart by identity: one may compare equal to another.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._entries: dict[int, _Entry[T]] = {}

    def __len__(self) -> int:
        """Count the sandboxes that are still there."""
        return len(self._entries)

    def of(self, sandbox: Sandbox) -> T:
        """Return the state of a sandbox."""
        key = id(sandbox)
        entry = self._entries.get(key)
        if entry is None or entry.sandbox() is not sandbox:
            entry = _Entry(
                weakref.ref(sandbox, lambda _: self._entries.pop(key, None)), self._make()
            )
            self._entries[key] = entry
        return entry.state
