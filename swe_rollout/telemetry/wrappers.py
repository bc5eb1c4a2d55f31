"""An engine and sandboxes that tell an observer of every call. Used where a job is assembled."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from swe_rollout.agent.tools.marks import ACTING
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.chat.base import ChatEngine, ChatRequest, ChatResponse
from swe_rollout.observer import (
    NO_WAIT_S,
    EngineCall,
    Execution,
    Observer,
    SandboxStart,
    Span,
    TurnId,
)
from swe_rollout.sandbox.base import (
    MAX_OUTPUT_BYTES,
    ExecResult,
    Markable,
    Prewarmed,
    Reattaching,
    Sandbox,
    SandboxDelta,
    SandboxMark,
    SandboxProvider,
    SandboxRequest,
    Snapshots,
)
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import Generation


@dataclass(frozen=True, slots=True)
class _Clock:
    """Measures one call, and what of it the episode's own clock did not count."""

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


def observed_engine(
    engine: TokenEngine | ChatEngine, observer: Observer, policy_of: Callable[[EpisodeId], str]
) -> TokenEngine | ChatEngine:
    """Return an engine that tells `observer` of each call; `policy_of` names the policy."""
    if isinstance(engine, ChatEngine):
        return ObservedChatEngine(engine, observer, policy_of)
    return ObservedEngine(engine, observer, policy_of)


class ObservedEngine(TokenEngine):
    """A token engine that tells an observer of each call."""

    def __init__(
        self, engine: TokenEngine, observer: Observer, policy_of: Callable[[EpisodeId], str]
    ) -> None:
        self._engine = engine
        self._observer = observer
        self._policy_of = policy_of

    async def info(self) -> EngineInfo:
        return await self._engine.info()

    async def generate(self, request: GenerateRequest) -> Generation:
        turn = TurnId(request.episode, request.turn, request.branch)
        self._observer.engine_call_began(turn)
        clock, found, failed = _Clock(request.clock), None, None
        try:
            found = await self._engine.generate(request)
        except BaseException as error:
            failed = error
            raise
        finally:
            span = clock.span(failed)
            self._observer.engine_called(
                EngineCall(
                    turn,
                    self._policy_of(request.episode),
                    request.sampling,
                    request.max_new_tokens,
                    span,
                    clock.waited_s(span),
                    prompt_tokens=found.prompt_tokens if found else 0,
                    cached_tokens=found.cached_tokens if found else 0,
                    sampled_tokens=len(found.token_ids) if found else 0,
                    finish_reason=found.finish_reason if found else None,
                )
            )
        return found

    def release(self, episode: EpisodeId) -> None:
        self._engine.release(episode)

    async def aclose(self) -> None:
        await self._engine.aclose()


class ObservedChatEngine(ChatEngine):
    """A chat engine that tells an observer of each call."""

    def __init__(
        self, engine: ChatEngine, observer: Observer, policy_of: Callable[[EpisodeId], str]
    ) -> None:
        self._engine = engine
        self._observer = observer
        self._policy_of = policy_of

    async def info(self) -> EngineInfo:
        return await self._engine.info()

    async def respond(self, request: ChatRequest) -> ChatResponse:
        turn = TurnId(request.episode, request.turn, ACTING.get())
        self._observer.engine_call_began(turn)
        clock, found, failed = _Clock(request.clock), None, None
        try:
            found = await self._engine.respond(request)
        except BaseException as error:
            failed = error
            raise
        finally:
            span = clock.span(failed)
            self._observer.engine_called(
                EngineCall(
                    turn,
                    self._policy_of(request.episode),
                    request.sampling,
                    request.max_new_tokens,
                    span,
                    clock.waited_s(span),
                    prompt_tokens=found.usage.prompt_tokens if found else 0,
                    cached_tokens=found.usage.cached_tokens if found else 0,
                    sampled_tokens=found.usage.completion_tokens if found else 0,
                    finish_reason=found.finish_reason if found else None,
                )
            )
        return found

    def release(self, episode: EpisodeId) -> None:
        self._engine.release(episode)

    async def aclose(self) -> None:
        await self._engine.aclose()


class ObservedSandboxes:
    """A `SandboxProvider` that tells an observer of each start, and of each command after it."""

    def __init__(self, provider: SandboxProvider, observer: Observer) -> None:
        self._provider = provider
        self._observer = observer

    async def start(self, request: SandboxRequest) -> Sandbox:
        clock, found, failed = _Clock(), None, None
        try:
            found = await self._provider.start(request)
        except BaseException as error:
            failed = error
            raise
        finally:
            is_warm = isinstance(found, Prewarmed) and found.is_warm
            role = request.role.value
            start = SandboxStart(request.episode, role, clock.span(failed), is_warm)
            self._observer.sandbox_started(start)
        return self._observed(found, request)

    async def attach(
        self, request: SandboxRequest, mark: SandboxMark, *, life: int, delta: int
    ) -> Sandbox | None:
        if not isinstance(self._provider, Reattaching):
            return None
        found = await self._provider.attach(request, mark, life=life, delta=delta)
        return None if found is None else self._observed(found, request)

    def _observed(self, sandbox: Sandbox, request: SandboxRequest) -> Sandbox:
        wrap = ObservedSnapshots if isinstance(sandbox, Snapshots) else ObservedSandbox
        return wrap(sandbox, self._observer, request)

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        self._provider.prewarm(requests)

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        await self._provider.delete_orphans(episodes)

    async def aclose(self) -> None:
        await self._provider.aclose()


class ObservedSandbox(Sandbox):
    """A sandbox that tells an observer of each command."""

    def __init__(self, sandbox: Sandbox, observer: Observer, request: SandboxRequest) -> None:
        self._sandbox = sandbox
        self._observer = observer
        self._request = request

    @property
    def workdir(self) -> str:
        return self._sandbox.workdir

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = 120.0,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        clock, found, failed = _Clock(), None, None
        try:
            found = await self._sandbox.exec(
                command,
                cwd=cwd,
                env=env,
                stdin=stdin,
                timeout_s=timeout_s,
                max_output=max_output,
            )
        except BaseException as error:
            failed = error
            raise
        finally:
            self._observer.executed(
                Execution(
                    self._request.episode,
                    self._request.role.value,
                    clock.span(failed),
                    branch=ACTING.get(),
                    exit_code=found.exit_code if found else None,
                    timed_out=found.timed_out if found else False,
                )
            )
        return found

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        return await self._sandbox.read_file(path, max_bytes=max_bytes)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        await self._sandbox.write_file(path, data, mode=mode)

    async def end_processes(self) -> None:
        await self._sandbox.end_processes()

    async def close(self) -> None:
        await self._sandbox.close()


class ObservedSnapshots(ObservedSandbox, Snapshots):
    """An observed sandbox that has snapshots."""

    def __init__(self, sandbox: Sandbox, observer: Observer, request: SandboxRequest) -> None:
        super().__init__(sandbox, observer, request)
        if not isinstance(sandbox, Snapshots):
            raise TypeError("the sandbox has no snapshots")
        self._snapshots: Snapshots = sandbox

    async def changes(self, *, since: int | None = None) -> SandboxDelta:
        return await self._snapshots.changes(since=since)

    async def apply(self, delta: SandboxDelta) -> None:
        await self._snapshots.apply(delta)

    async def mark(self) -> SandboxMark | None:
        """Return that of the sandbox; none where it has none."""
        return await self._sandbox.mark() if isinstance(self._sandbox, Markable) else None
