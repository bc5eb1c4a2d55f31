"""Turn: one generation of the policy, its tool calls and their observations."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# msgspec reads the annotations of these classes at run time.
from swe_rollout.tokens.log import RequestProof
from swe_rollout.tokens.replay import ReplayRows


class FinishReason(StrEnum):
    """Why one generation ended, in SGLang's terms."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class WeightSpan:
    """The weight version that sampled output tokens `[start, end)` of a generation."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Generation:
    """The output of one engine call, as the engine reported it."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int = 0
    weight_versions: tuple[WeightSpan, ...] = ()
    replay: ReplayRows | None = None
    """Replay data, if the job records any."""


class CallStatus(StrEnum):
    """The parse result of one attempt at a tool call."""

    OK = "ok"
    INVALID_JSON = "invalid_json"
    UNCLOSED = "unclosed"
    MISSING_NAME = "missing_name"
    MALFORMED = "malformed"
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """Sampled tokens `[start, end)` of one turn."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One attempt at a call, as sampled. It is never repaired."""

    status: CallStatus
    raw: str
    """The sampled text between the call's delimiters."""
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    """The arguments, typed by the tool's schema; empty unless `status` is ok."""
    problem: str = ""
    """The error shown to the policy when `status` is not ok."""
    id: str = field(default="", compare=False)
    """The id the policy gave the call, in families with call ids; results refer to it."""
    span: TokenSpan | None = field(default=None, compare=False)
    """The tokens of the attempt with its delimiters; None if only text is known."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of one call, as the policy saw it."""

    text: str
    exit_code: int | None = None
    """The command's exit code; None for tools that run no command, and for parse errors."""
    timed_out: bool = False
    truncated: bool = False
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One generation, its tool calls and their observations."""

    index: int
    request: RequestProof
    """Proof of the prompt: it is `token_ids[:request.length]` of the turn's branch."""
    text: str
    """The sampled ids, decoded for people. Never tokenised again."""
    finish_reason: FinishReason
    completion_tokens: int
    cached_tokens: int
    tool_calls: tuple[ToolCall, ...] = ()
    observations: tuple[Observation, ...] = ()
    """One observation per call, in order; fewer if the episode ended during the turn."""
    weight_versions: tuple[WeightSpan, ...] = ()
    engine_s: float = 0.0
    tools_s: float = 0.0
    branch: int = 0
    """The branch that contains the turn's tokens."""
    message: str = ""
    """The agent program's message to the policy before it. Absent from the stored form if empty."""

    def __repr__(self) -> str:
        calls = ", ".join(call.name or call.status for call in self.tool_calls) or "no call"
        return f"<Turn {self.index}: {calls[:60]}, {self.completion_tokens} tokens>"
