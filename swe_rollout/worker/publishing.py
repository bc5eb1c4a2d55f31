"""Publish each call to a job's engine, each sandbox start, and each command in a sandbox."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
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


class _Measured:
    """Measures the call in its block, and calls `on_end` however it ends."""

    def __init__(
        self, on_end: Callable[[Span, float], None], clock: Deadline | None = None
    ) -> None:
        """`on_end` gets the span, and for how long the episode's clock was stopped in it."""
        self._on_end = on_end
        self._clock = clock

    def __enter__(self) -> None:
        self._left_s = self._clock.remaining_s if self._clock else 0.0
        self._began_at, self._began = time.time(), time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        seconds = time.perf_counter() - self._began
        span = Span(self._began_at, seconds, "" if kind is None else kind.__name__)
        left_s = self._clock.remaining_s if self._clock else 0.0
        # Once the episode's time is up, this can't be known.
        waited_s = seconds - (self._left_s - left_s) if left_s else 0.0
        self._on_end(span, waited_s if waited_s > NO_WAIT_S else 0.0)


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
        found: Generation | ChatResponse | None = None

        def ended(span: Span, waited_s: float) -> None:
            prompt, cached, sampled = _tokens(found)
            self.publish(
                EngineCall(
                    turn,
                    self.policy_of(request.episode),
                    request.sampling,
                    request.max_new_tokens,
                    span,
                    waited_s,
                    prompt_tokens=prompt,
                    cached_tokens=cached,
                    sampled_tokens=sampled,
                    finish_reason=found.finish_reason if found else None,
                )
            )

        self.publish(EngineCallBegan(turn))
        with _Measured(ended, request.clock):
            answer = await call()
            found = answer
        return answer


def _tokens(found: Generation | ChatResponse | None) -> tuple[int, int, int]:
    """Return the numbers of prompt, cached and sampled tokens."""
    match found:
        case Generation():
            return found.prompt_tokens, found.cached_tokens, len(found.token_ids)
        case ChatResponse():
            used = found.usage
            return used.prompt_tokens, used.cached_tokens, used.completion_tokens
        case _:
            return 0, 0, 0


class PublishingSandboxes(WrappedSandboxes):
    """A provider that publishes each start, and each command in its sandboxes."""

    def __init__(self, provider: SandboxProvider, publish: Subscriber) -> None:
        super().__init__(provider)
        self._publish = publish

    async def start(self, request: SandboxRequest) -> Sandbox:
        found: object = None

        def ended(span: Span, _: float) -> None:
            is_warm = isinstance(found, Prewarmed) and found.is_warm
            self._publish(SandboxStart(request.episode, request.role.value, span, is_warm))

        with _Measured(ended):
            found = started = await super().start(request)
        return publishing_sandbox(started, self._publish, request)

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
        ran: ExecResult | None = None
        with _Measured(lambda span, _: self._ended(span, ran)):
            found = await call()
            ran = found if isinstance(found, ExecResult) else None
        return found

    def _ended(self, span: Span, ran: ExecResult | None) -> None:
        self.publish(
            Execution(
                self.request.episode,
                self.request.role.value,
                span,
                branch=ACTING.get(),
                exit_code=ran.exit_code if ran else None,
                timed_out=ran.timed_out if ran else False,
            )
        )
