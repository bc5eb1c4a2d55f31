"""Hooks of a Strands agent: the loop that a model needs, and its limits.

Strands plays each turn one level deeper in its own recursion: every event climbs through all
levels, and at about 320 turns Python's stack ends. With `LoopHooks`, which a model registers in its
first turn, the loop sometimes returns to its top, between two turns, and continues with the same
messages: any number of turns, each at the same cost. The result of an unreadable call is a
description of its problem, and no tool is run for it.

`LoopLimiter` bounds a loop. A limit raises once the results of a turn are in the conversation, so
that what was sampled is complete and nothing has to be cut. Strands wraps the error in an
`EventLoopException`, whose `original_exception` it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
"""Number of turns with calls until the loop returns to its top."""
_DEFERRED: Final = "_deferred_cancel"
"""Strands' own mark that it was asked to end between two turns; there is no public API for it."""


class LoopLimitReachedError(Exception):
    """A LoopLimiter's limit is reached; the conversation ends with a complete message."""


class MaxToolIterationsReachedError(LoopLimitReachedError):
    """The limit on turns with calls is reached; all of them have results."""


class MaxToolCallsReachedError(LoopLimitReachedError):
    """The limit on calls with results is reached; a turn's calls get results together."""


class MaxMessagesReachedError(LoopLimitReachedError):
    """The conversation has reached the limit on messages; the last one is the user's."""


class LoopLimiter(HookProvider):
    """Counts turns with calls, calls and messages, over all prompts until `reset`."""

    def __init__(
        self,
        max_tool_iters: int | None = None,
        max_tool_calls: int | None = None,
        max_parallel_tool_calls: int | None = None,
        max_messages: int | None = None,
    ) -> None:
        """Limits that are None are off. `max_tool_iters` bounds turns with calls, however many each
        makes. `max_parallel_tool_calls` is how many calls of a turn are run, in the order in which
        the model wrote them; the others result in an error. `max_messages` counts all roles.
        """
        self.max_tool_iters = max_tool_iters
        self.max_tool_calls = max_tool_calls
        self.max_parallel_tool_calls = max_parallel_tool_calls
        self.max_messages = max_messages
        self.reset()

    def reset(self) -> None:
        """Restart the counts from zero."""
        self.tool_iter_count = 0
        self.tool_call_count = 0
        self.message_count = 0
        self.cancelled_tool_call_count = 0
        self._excess: frozenset[str] = frozenset()

    def register_hooks(self, registry: HookRegistry, **kwargs: object) -> None:
        """Register with an agent; Strands calls it."""
        del kwargs
        registry.add_callback(MessageAddedEvent, self._count)
        registry.add_callback(BeforeToolCallEvent, self._cancel_excess)

    def _count(self, event: MessageAddedEvent) -> None:
        message = event.message
        self.message_count += 1
        if message["role"] == "assistant":
            self._count_calls(_ids(message["content"], "toolUse"))
            return
        if _ids(message["content"], "toolResult"):
            self._check_tools()
        if self.max_messages is not None and self.message_count >= self.max_messages:
            raise MaxMessagesReachedError(f"max_messages ({self.max_messages}) is reached")

    def _count_calls(self, calls: Sequence[str]) -> None:
        self.tool_iter_count += bool(calls)
        self.tool_call_count += len(calls)
        bound = self.max_parallel_tool_calls
        self._excess = frozenset() if bound is None else frozenset(calls[bound:])

    def _check_tools(self) -> None:
        if self.max_tool_iters is not None and self.tool_iter_count >= self.max_tool_iters:
            raise MaxToolIterationsReachedError(
                f"max_tool_iters ({self.max_tool_iters}) is reached"
            )
        if self.max_tool_calls is not None and self.tool_call_count >= self.max_tool_calls:
            raise MaxToolCallsReachedError(f"max_tool_calls ({self.max_tool_calls}) is reached")

    def _cancel_excess(self, event: BeforeToolCallEvent) -> None:
        if event.tool_use["toolUseId"] in self._excess:
            self.cancelled_tool_call_count += 1
            event.cancel_tool = (
                f"not run: a turn may make {self.max_parallel_tool_calls} calls, and this one is "
                "too many. Call it again in a turn of its own."
            )


def _ids(content: Sequence[Mapping[str, Mapping[str, str]]], key: str) -> Sequence[str]:
    return [block[key]["toolUseId"] for block in content if key in block]


ToolLimiter = LoopLimiter
"""The name of LoopLimiter in strands-sglang before 0.4.3."""


class LoopHooks(HookProvider):
    """The hooks of one model on one agent."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        """`problems` of the last turn's calls, by id; the model updates this mapping."""
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
        """Ask the loop to return before the next turn, unless somebody else asked it to end."""
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
    """Whether somebody else has cancelled the agent, immediately or after last words."""
    return agent.cancel_signal.is_set() or getattr(agent, "_cancel_message", None) is not None


def _has_structured_output(agent: Agent) -> bool:
    """Whether the last turn produced the output that ends the invocation."""
    outputs = set(agent.tool_registry.dynamic_tools)
    turn = agent.messages[-2]["content"] if len(agent.messages) > 1 else []
    return any(block["toolUse"]["name"] in outputs for block in turn if "toolUse" in block)
