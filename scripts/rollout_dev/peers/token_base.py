"""The interface of token keepers: tokens of a conversation behind `TokenSubject`.

`tokens` lists all of them. Benches and conformance take them through the same conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from swe_rollout.agent.renderer import Renderer
from swe_rollout.testing.tokens.subjects import TokenSubject

Start: TypeAlias = Callable[[], TokenSubject]
"""Starts one conversation."""

FLOOR: Final = "hand-written delta"
RERENDER: Final = "re-render"
REFUSALS: Final = (
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions of peers for a vocabulary that they do not support."""


class UnknownFamilyError(LookupError):
    """A peer does not support this model; the text says what is missing."""


class Bind(Protocol):
    """Binds a keeper to a model."""

    def __call__(self, renderer: Renderer) -> Start:
        """Return a factory of conversations; raises UnknownFamilyError."""
        ...


@dataclass(frozen=True, slots=True)
class Keeper:
    """One way to keep tokens, by name and version."""

    name: str
    bind: Bind
    """Call it only where `skipped` is empty."""
    skipped: str = ""
    """How to install it; empty where it is installed."""


def functions(tools: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return the inner objects of tools in OpenAI's function form."""
    inner = (tool["function"] for tool in tools)
    return [function for function in inner if isinstance(function, dict)]
