"""The requests of a harness: one node each, in the tree of an episode's conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from swe_rollout.agent.branches import OpenBranch
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.tools.base import ToolContext, ToolSpec
from swe_rollout.errors import InternalError
from swe_rollout.gateway.matching import results_of, tells
from swe_rollout.gateway.values import Answer, Request
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.limits import CutTurns
from swe_rollout.types.turn import Observation, ToolCall

_MOST_LEFT_OUT: Final = 64
"""What a record names of what an episode's requests have; the policy may make up names."""


class EndedError(Exception):
    """The episode is over: no request of its harness is answered any more."""


@dataclass(slots=True, eq=False)
class Node:
    """One request and its answer."""

    limits: tuple[object, ...]
    """Those that the request has of its own."""
    parent: Node | None = None
    _branch: OpenBranch | None = None
    end: int = 0
    """The tokens of the branch with the answer."""
    turn: int = 0
    """The answer's turn."""
    task: asyncio.Task[Answer] = field(init=False)
    calls: tuple[ToolCall, ...] = ()
    """The calls of the answer, as they were sampled."""
    reasoning_is_open: bool = False
    is_extended: bool = False
    """Whether the branch goes on behind the answer."""

    @property
    def branch(self) -> OpenBranch:
        """The branch that holds the answer."""
        if self._branch is None:
            raise InternalError("a turn was sampled in no branch")
        return self._branch

    @branch.setter
    def branch(self, opened: OpenBranch) -> None:
        self._branch = opened

    @property
    def answer(self) -> Answer | None:
        """The answer, once it is there."""
        task = self.task
        is_there = task.done() and not task.cancelled() and not task.exception()
        return task.result() if is_there else None

    def answers(self, request: Request) -> bool:
        """Return whether an equal conversation gets this answer, from which nothing goes on yet."""
        return self.limits == request.limits and not self.is_extended


@dataclass(frozen=True, slots=True)
class OfHarness:
    """A tool that the harness runs."""

    spec: ToolSpec

    async def run(self, arguments: object, sandbox: Sandbox, context: ToolContext) -> Observation:
        del arguments, sandbox, context
        raise InternalError("a harness runs its own tools")


def has_failed(task: asyncio.Task[Answer]) -> bool:
    return task.cancelled() or task.exception() is not None


def within(parts: AgentParts, request: Request) -> AgentParts:
    """Return the parts with the limits of one request."""
    most = parts.limits.max_new_tokens
    if request.max_tokens is not None:
        most = max(1, min(most, request.max_tokens))
    given = {"max_new_tokens": most, "cut_turns": CutTurns.ANSWER}
    return replace(parts, limits=parts.limits.model_copy(update=given))


def why_apart(
    known: Mapping[bytes, Sequence[Node]], request: Request, digests: Sequence[bytes]
) -> str:
    """Return why a request extends no answer; `digests` are its own."""
    known = {at: found for at, each in known.items() if (found := [n for n in each if n.answer])}
    if not known:
        return ""
    if known.get(digests[-1]):
        return "is asked again"
    last = max((at for at, digest in enumerate(digests[:-1]) if digest in known), default=None)
    if last is None:
        return "another prompt, or other tools"
    turn, nodes = request.turns[last], known[digests[last]]
    node = next((each for each in nodes if each.answer and tells(turn, each.answer)), None)
    if node is None:
        return f"turn {last + 1} is told otherwise than it was sampled"
    if results_of(node.calls, turn) is None:
        return f"other results of turn {last + 1}, or not all of them"
    return f"turn {last + 2} was not sampled here"


def newly_left_out(request: Request, known: set[str]) -> list[str]:
    """Return what has no meaning here and is not known to be left out yet, and make it known."""
    new = [each for each in dict.fromkeys(request.ignored) if each not in known]
    del new[max(0, _MOST_LEFT_OUT - len(known)) :]
    known.update(new)
    return new
