"""TokenEngine: token ids in, sampled token ids with logprobs out.

Implementations: `pool.pool` (one or more SGLang servers, each spoken to by `sglang.engine` over
the native `/generate`) and `scripted.engine` (plays named scenarios; served over HTTP it speaks the
same `/generate`, so the client path is the real one).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.log import InputIds
from swe_rollout.tokens.replay import ReplayRequest
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import Generation


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A call: all token ids so far, and how many may be sampled after them."""

    episode: EpisodeId
    """The calls of an episode stay on one server, whose prefix cache holds their prompt."""
    turn: int
    """The turn's number, from 0; an aborted turn continues under its own number."""
    input_ids: InputIds
    """The prompt and everything sampled or appended since; never empty."""
    max_new_tokens: int
    """At least 1. The engine may lower it to what still fits into its context."""
    sampling: Sampling
    stop_token_ids: tuple[int, ...]
    """Each of these ids ends the generation, and is then its last id."""
    replay: ReplayRequest | None = None
    """The data to return besides ids and logprobs; None asks for nothing more."""
    branch: int = 0
    """The branch of the episode to which the ids belong; each branch has its own prompt."""
    clock: Deadline | None = field(default=None, compare=False)
    """The episode's clock; the engine stops it while the call waits for a server that is paused or
    down. None if the call belongs to no episode."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine reports about itself."""

    model: str
    """The name under which the engine serves the model."""
    context_tokens: int | None
    """The maximum of prompt and completion together; None if the engine does not report it."""
    vocab_size: int | None
    """Token ids are below this number; None if the engine does not report it."""
    weight_version: str | None
    """The version of the weights that sample now; None if the engine has no versions."""
    tokenizer: str | None = None
    """Where the engine's tokenizer is: a folder that both sides see, or a name on the hub."""


@runtime_checkable
class TokenEngine(Protocol):
    """Samples tokens for many episodes at once.

    A process has one instance and calls it from one event loop, for many episodes concurrently;
    calls for the same episode never overlap. Until it calls `release`, the caller guarantees that
    the `input_ids` of a branch's next request begin with the `input_ids` of its last one followed
    by the ids sampled for it.

    A call that fails raises `EngineError`: it is recorded as the failure of the attempt, never as
    reward 0, and its `retryable` says whether another attempt can succeed. An engine that does not
    respond to `info` raises `UnreachableError`.
    """

    async def info(self) -> EngineInfo:
        """Ask the engine which model it serves.

        Called before the first `generate`, and every 10 seconds as a health check: ask each time,
        cache nothing, and return or fail within a few seconds. Where several servers are behind the
        engine, report what holds for all of them, such as the smallest context.

        Raises UnreachableError when no server responds.
        """
        ...

    async def generate(self, request: GenerateRequest) -> Generation:
        """Sample one turn.

        The `Generation` holds the ids exactly as sampled, the stop token included, never tokenised
        from text, and one logprob for each: the natural logarithm of its probability under the
        model at `sampling.temperature`, always finite. `prompt_tokens` counts `input_ids`, and
        `cached_tokens` those of them that were read from the prefix cache.

        `finish_reason` is `STOP` after a stop token, `LENGTH` after `max_new_tokens` or a full
        context, and `ABORT` when the call was aborted: the ids sampled until then, perhaps none,
        are valid, and the caller continues the turn with them. `weight_versions` covers `[0,
        len(token_ids))` without gaps, or is empty where the engine has no versions. `replay` is set
        when the request asks for it, unless the call was aborted before its prompt was processed.

        A call that is lost together with its server is repeated here with the same ids, and
        `request.clock` is stopped meanwhile. Cancelling the call ends it on the server too.

        Raises EngineError when the call fails for good or its response can't be trained on;
        `engine.checked` also raises it for a `Generation` that breaks what is said here. May
        raise InternalError, with nothing sent, when the request breaks the caller's guarantee.
        """
        ...

    def release(self, episode: EpisodeId) -> None:
        """Drop the state kept for an episode, such as its server and its prefix.

        Called when an attempt ends, however it ends, and before its conversation is rendered in
        another way: the next request of the episode may begin with any ids. Releasing an unknown
        episode has no effect. The default keeps nothing and does nothing.
        """
        del episode

    async def aclose(self) -> None:
        """Close connections, and end the calls in flight. Nothing is called afterwards.

        The default holds nothing and does nothing.
        """
        return


class CacheGate(Protocol):
    """Lets episodes start when an engine's cache has room for their contexts."""

    @property
    def capacity(self) -> int | None:
        """How many episodes could have a context in the cache now; None if all."""
        return None

    async def enter(self, episode: EpisodeId) -> None:
        """Wait for room for an episode's context, before its sandbox starts.

        It is the episode's until `TokenEngine.release`. The default has room for all.
        """


class OpenGate(CacheGate):
    """Lets every episode start at once."""
