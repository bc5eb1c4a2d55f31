"""Token keepers hold a conversation's tokens behind `TokenSubject`: peers, and two plain ways.

Benches and conformance run them through the same conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Final, TypeAlias, cast

from rollout_dev.peers.environment import HOW, is_installed
from swe_rollout.agent.renderer import Renderer
from swe_rollout.testing.tokens.subjects import TokenSubject

Start: TypeAlias = Callable[[], TokenSubject]
"""Starts one conversation."""

FLOOR: Final = "hand-written delta"
RERENDER: Final = "re-render"
REFUSALS: Final = (
    *(AssertionError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError),
    ValueError,
)
"""Exceptions of peers for a vocabulary that they do not support."""


class UnknownFamilyError(LookupError):
    """A peer does not support this model; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """A way to keep tokens, by name and version."""

    name: str
    place: str
    """`module:function` in this package; a peer's module is imported on demand."""
    skipped: str = ""
    """How to install it; empty if it is installed."""

    def bind(self, renderer: Renderer) -> Start:
        """Return a factory of conversations with a model; raises UnknownFamilyError.

        Call it only if `skipped` is empty.
        """
        module, _, function = self.place.partition(":")
        found = getattr(import_module(f"rollout_dev.peers.{module}"), function)
        return cast("Callable[[Renderer], Start]", found)(renderer)


def keepers() -> tuple[Keeper, ...]:
    """Return every peer, installed or not, the floor, and the classic mistake."""
    return (
        _peer("strands-sglang", "strands_sglang", "strands_tokens"),
        _peer("renderers", "renderers", "renderers_tokens"),
        _peer("verl", "verl", "verl_tokens"),
        Keeper(FLOOR, "plain_tokens:floor"),
        Keeper(RERENDER, "plain_tokens:rerender"),
    )


def _peer(name: str, package: str, module: str) -> Keeper:
    if not is_installed(package):
        return Keeper(name, f"{module}:start", skipped=HOW)
    return Keeper(f"{name} {version(name)}", f"{module}:start")


def functions(tools: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return the inner objects of tools in OpenAI's function form."""
    inner = (tool["function"] for tool in tools)
    return [function for function in inner if isinstance(function, dict)]
