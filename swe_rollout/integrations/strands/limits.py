"""LoopLimiter: a Strands hook that bounds an agent's loop, also under the name ToolLimiter.

A limit raises once the results of a turn are in the conversation: what was sampled is complete, and
nothing has to be cut. Strands wraps the error in an `EventLoopException`, whose
`original_exception` it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strands.hooks import BeforeToolCallEvent, HookProvider, HookRegistry, MessageAddedEvent


class LoopLimitReachedError(Exception):
    """A limit of a LoopLimiter is reached; the conversation ends with a complete message."""


class MaxToolIterationsReachedError(LoopLimitReachedError):
    """So many turns made calls, and have been answered."""


class MaxToolCallsReachedError(LoopLimitReachedError):
    """So many calls have been answered; a turn's calls are answered together."""


class MaxMessagesReachedError(LoopLimitReachedError):
    """The conversation has so many messages, and the last one is the user's."""


class LoopLimiter(HookProvider):  # type: ignore[misc] # untyped where Strands is not installed
    """Counts turns with calls, calls and messages, over all prompts until `reset`."""

    def __init__(
        self,
        max_tool_iters: int | None = None,
        max_tool_calls: int | None = None,
        max_parallel_tool_calls: int | None = None,
        max_messages: int | None = None,
    ) -> None:
        """None: no limit. `max_tool_iters`: turns with calls, however many calls each makes.
        `max_parallel_tool_calls`: calls of one turn that are run; the others, in the order in which
        the model wrote them, are answered with an error. `max_messages`: of all roles.
        """
        self.max_tool_iters = max_tool_iters
        self.max_tool_calls = max_tool_calls
        self.max_parallel_tool_calls = max_parallel_tool_calls
        self.max_messages = max_messages
        self.reset()

    def reset(self) -> None:
        """Count from zero."""
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
"""Its name in strands-sglang before 0.4.3."""
