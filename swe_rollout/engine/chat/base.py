"""ChatEngine: a conversation in, one message out. It returns text, so nothing can be trained on.

Implementations: `chat.http` over the formats of `chat.openai` and `chat.anthropic`, and
`chat.function`. Its counterpart is `engine.base.TokenEngine`, whose episodes have tokens. The
record of an episode that a chat engine played has no tokens, no logprobs and an empty loss mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, runtime_checkable

from swe_rollout.engine.base import EngineInfo
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason

MAX_CALLS: Final = 4096
"""The most calls in one message; more than this is an invalid message."""
MAX_ID_CHARS: Final = 256


@dataclass(frozen=True, slots=True)
class ChatTool:
    """A tool that the policy may call."""

    name: str
    description: str
    parameters: Mapping[str, object]
    """The JSON schema of the tool's arguments, an object."""


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A call as the policy wrote it, unchecked."""

    id: str
    """The API's id of the call, unique in its message; the result refers to it."""
    name: str
    arguments: str
    """The arguments as JSON text. Any other text is the policy's mistake, and it is told so."""


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message from the harness: the task."""

    text: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A message from the policy."""

    text: str
    calls: tuple[ChatCall, ...] = ()
    reasoning: str = ""
    """The reasoning; empty if the API does not show it."""
    native: bytes = field(default=b"", repr=False)
    """The message as this API sent it, where it must go back unchanged: JSON. Empty: it is written
    from the other fields."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one call."""

    call_id: str
    text: str
    is_error: bool = False
    """Whether the call could not be run."""


@dataclass(frozen=True, slots=True)
class ToolResults:
    """The results of all calls of the previous message, in order."""

    results: tuple[ToolResult, ...]


ChatMessage: TypeAlias = UserMessage | AssistantMessage | ToolResults


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A call: the conversation so far."""

    episode: EpisodeId
    turn: int
    """The turn's number, from 0."""
    system: str
    """The system message; not sent if empty."""
    messages: tuple[ChatMessage, ...]
    """Starts with a user message; an assistant message with calls is followed by their results."""
    tools: tuple[ChatTool, ...]
    max_new_tokens: int
    """At least 1."""
    sampling: Sampling
    clock: Deadline | None = field(default=None, compare=False)
    """The episode's clock, stopped while a refused call waits; None without an episode."""


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """Token counts as the API reports them; 0 for a count that it does not report."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Tokens of the response, reasoning included."""
    cached_tokens: int = 0
    """Tokens of the prompt that were read from the cache."""


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """A message of the policy."""

    message: AssistantMessage
    finish_reason: FinishReason
    """`LENGTH` after `max_new_tokens` or a full context; its calls are not run. Never `ABORT`."""
    usage: ChatUsage = ChatUsage()
    model: str = ""
    """The model that responded, as the API names it; often more precise than the requested name."""


@runtime_checkable
class ChatEngine(Protocol):
    """Produces messages for many episodes at once.

    A process has one instance and calls it from one event loop, for many episodes concurrently;
    calls for the same episode never overlap. A call that fails raises `EngineError`: it is recorded
    as the failure of the attempt, never as reward 0.
    """

    async def info(self) -> EngineInfo:
        """Check that the engine is available; called at the start and as a health check.

        Raises UnreachableError if it is not, or if it rejects the key.
        """
        ...

    async def respond(self, request: ChatRequest) -> ChatResponse:
        """Return the policy's next message. Cancelling the call ends it.

        Raises EngineError when the call fails for good or its response can't be read.
        """
        ...

    def release(self, episode: EpisodeId) -> None:
        """Drop the state kept for an episode. The default keeps nothing and does nothing."""
        del episode

    async def aclose(self) -> None:
        """Close connections, and end the calls in flight. Nothing is called afterwards.

        The default holds nothing and does nothing.
        """
        return
