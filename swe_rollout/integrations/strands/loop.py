"""LoopHooks: what a model needs of the agent's loop. Registered by the model's first turn.

Strands plays each turn one level deeper in its own recursion: every event climbs through all
levels, and at about 320 turns Python's stack ends. Here the loop returns to its top now and then,
between two turns, and goes on with the same messages: any number of turns, at the same price each.

And a call that could not be read is answered with what was wrong; no tool is run for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from strands.hooks import (
    AfterInvocationEvent,
    BeforeToolCallEvent,
    HookProvider,
    HookRegistry,
    MessageAddedEvent,
)

if TYPE_CHECKING:
    from strands import Agent

UNWIND_AFTER: Final = 32
"""Turns with calls until the loop returns to its top."""
_DEFERRED: Final = "_deferred_cancel"
"""Strands' own note that it was asked to end between two turns; it has no public face."""


class LoopHooks(HookProvider):  # type: ignore[misc] # untyped where Strands is not installed
    """The hooks of one model on one agent."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        """`problems`: what is wrong with calls of the last turn, by id; the model changes it."""
        self._problems = problems
        self._turns = 0
        self._is_unwinding = False

    def register_hooks(self, registry: HookRegistry, **kwargs: object) -> None:
        """Register with an agent."""
        del kwargs
        registry.add_callback(BeforeToolCallEvent, self._refuse)
        registry.add_callback(MessageAddedEvent, self._unwind_in_time)
        registry.add_callback(AfterInvocationEvent, self._go_on)

    def _refuse(self, event: BeforeToolCallEvent) -> None:
        problem = self._problems.get(event.tool_use["toolUseId"])
        if problem is not None:
            event.cancel_tool = problem

    def _unwind_in_time(self, event: MessageAddedEvent) -> None:
        if not any("toolResult" in block for block in event.message["content"]):
            return
        self._turns += 1
        if self._turns >= UNWIND_AFTER and not _has_structured_output(event.agent):
            self._unwind(event.agent)

    def _unwind(self, agent: Agent) -> None:
        """Ask the loop to return before the next turn, unless somebody else has asked it to end."""
        if not getattr(agent, _DEFERRED, False):
            self._is_unwinding = True
            agent.cancel(after_current_tools=True)

    def _go_on(self, event: AfterInvocationEvent) -> None:
        is_unwinding, self._is_unwinding, self._turns = self._is_unwinding, False, 0
        if not is_unwinding:
            return
        agent = event.agent
        if hasattr(agent, _DEFERRED):
            # Strands clears it at the end of a prompt; until then it would stop after each turn.
            setattr(agent, _DEFERRED, False)
        has_stopped = event.result is not None and event.result.stop_reason == "cancelled"
        if has_stopped and event.resume is None and not _is_cancelled(agent):
            event.resume = []


def _is_cancelled(agent: Agent) -> bool:
    """Whether somebody else has cancelled the agent, at once or with last words."""
    return agent.cancel_signal.is_set() or getattr(agent, "_cancel_message", None) is not None


def _has_structured_output(agent: Agent) -> bool:
    """Whether the last turn gave the output that ends the invocation."""
    outputs = set(agent.tool_registry.dynamic_tools)
    turn = agent.messages[-2]["content"] if len(agent.messages) > 1 else []
    return any(block["toolUse"]["name"] in outputs for block in turn if "toolUse" in block)
