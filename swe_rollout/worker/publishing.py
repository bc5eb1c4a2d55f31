"""Publish each call of a job's engine, and each start of a sandbox and command in it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from swe_rollout.agent.tools.marks import ACTING
from swe_rollout.engine.base import GenerateRequest, TokenEngine
from swe_rollout.engine.chat.base import ChatEngine, ChatRequest, ChatResponse
from swe_rollout.engine.wrapped import wrapped_engine
from swe_rollout.events import (
    NO_WAIT_S,
    EngineCall,
    EngineCallBegan,
    Execution,
    SandboxStart,
    Span,
    Subscriber,
    TurnId,
)
from swe_rollout.sandbox.base import (
    ExecResult,
    Prewarmed,
    Sandbox,
    SandboxMark,
    SandboxProvider,
    SandboxRequest,
    Snapshots,
)
from swe_rollout.sandbox.wrapped import (
    Operation,
    OperationKind,
    WrappedSandbox,
    WrappedSandboxes,
    WrappedSnapshots,
)
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import Generation

_T = TypeVar("_T")
_R = TypeVar("_R", Generation, ChatResponse)


@dataclass(frozen=True, slots=True)
class _Clock:
    """Measures one call, and the part of it that the episode's own clock did not count."""

    episode: Deadline | None = None
    began_at: float = field(default_factory=time.time)
    began: float = field(default_factory=time.perf_counter)
    left_s: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "left_s", self.episode.remaining_s if self.episode else 0.0)

    def span(self, error: BaseException | None = None) -> Span:
        """Return the span from the beginning to now."""
        name = "" if error is None else type(error).__name__
        return Span(self.began_at, time.perf_counter() - self.began, name)

    def waited_s(self, span: Span) -> float:
        """Return the part of the span during which the episode's clock stood still."""
        if self.episode is None or not self.episode.remaining_s:
            return 0.0
        waited = span.seconds - (self.left_s - self.episode.remaining_s)
        return waited if waited > NO_WAIT_S else 0.0


def publishing_engine(
    engine: TokenEngine | ChatEngine, publish: Subscriber, policy_of: Callable[[EpisodeId], str]
) -> TokenEngine | ChatEngine:
    """Return an engine that publishes each call; `policy_of` names the policy."""
    return wrapped_engine(engine, _EngineCalls(publish, policy_of))


@dataclass(frozen=True, slots=True)
class _EngineCalls:
    """Publishes the calls that it surrounds."""

    publish: Subscriber
    policy_of: Callable[[EpisodeId], str]

    async def __call__(
        self, request: GenerateRequest | ChatRequest, call: Callable[[], Awaitable[_R]]
    ) -> _R:
        branch = ACTING.get() if isinstance(request, ChatRequest) else request.branch
        turn = TurnId(request.episode, request.turn, branch)
        self.publish(EngineCallBegan(turn))
        clock, found, failed = _Clock(request.clock), None, None
        try:
            found = await call()
        except BaseException as error:
            failed = error
            raise
        finally:
            span = clock.span(failed)
            prompt, cached, sampled = _tokens(found)
            self.publish(
                EngineCall(
                    turn,
                    self.policy_of(request.episode),
                    request.sampling,
                    request.max_new_tokens,
                    span,
                    clock.waited_s(span),
                    prompt_tokens=prompt,
                    cached_tokens=cached,
                    sampled_tokens=sampled,
                    finish_reason=found.finish_reason if found else None,
                )
            )
        return found


def _tokens(found: Generation | ChatResponse | None) -> tuple[int, int, int]:
    """Return the tokens of the prompt, those of them read from a cache, and those sampled."""
    match found:
        case Generation():
            return found.prompt_tokens, found.cached_tokens, len(found.token_ids)
        case ChatResponse():
            used = found.usage
            return used.prompt_tokens, used.cached_tokens, used.completion_tokens
        case _:
            return 0, 0, 0


class PublishingSandboxes(WrappedSandboxes):
    """A provider that publishes each start, and each command in what it started."""

    def __init__(self, provider: SandboxProvider, publish: Subscriber) -> None:
        super().__init__(provider)
        self._publish = publish

    async def start(self, request: SandboxRequest) -> Sandbox:
        clock, found, failed = _Clock(), None, None
        try:
            found = await super().start(request)
        except BaseException as error:
            failed = error
            raise
        finally:
            is_warm = isinstance(found, Prewarmed) and found.is_warm
            role = request.role.value
            self._publish(SandboxStart(request.episode, role, clock.span(failed), is_warm))
        return publishing_sandbox(found, self._publish, request)

    async def attach(
        self, request: SandboxRequest, mark: SandboxMark, *, life: int, delta: int
    ) -> Sandbox | None:
        found = await super().attach(request, mark, life=life, delta=delta)
        return None if found is None else publishing_sandbox(found, self._publish, request)


def publishing_sandbox(sandbox: Sandbox, publish: Subscriber, request: SandboxRequest) -> Sandbox:
    """Return a sandbox that publishes each command."""
    wrap = WrappedSnapshots if isinstance(sandbox, Snapshots) else WrappedSandbox
    return wrap(sandbox, _Executions(publish, request))


@dataclass(frozen=True, slots=True)
class _Executions:
    """Publishes the commands that it surrounds."""

    publish: Subscriber
    request: SandboxRequest

    async def __call__(self, operation: Operation, call: Callable[[], Awaitable[_T]]) -> _T:
        if operation.kind is not OperationKind.EXEC:
            return await call()
        clock, found, failed = _Clock(), None, None
        try:
            found = await call()
        except BaseException as error:
            failed = error
            raise
        finally:
            ran = found if isinstance(found, ExecResult) else None
            self.publish(
                Execution(
                    self.request.episode,
                    self.request.role.value,
                    clock.span(failed),
                    branch=ACTING.get(),
                    exit_code=ran.exit_code if ran else None,
                    timed_out=ran.timed_out if ran else False,
                )
            )
        return found
