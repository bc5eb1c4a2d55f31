"""Wrappers of engines and sandboxes: the same answers, and an observer that is told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest

from swe_rollout.agent.tools.marks import ACTING
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.chat.base import (
    AssistantMessage,
    ChatEngine,
    ChatRequest,
    ChatResponse,
    ChatUsage,
    UserMessage,
)
from swe_rollout.errors import EngineError, ExtensionFailedError, SandboxError
from swe_rollout.events import EngineCall, EngineCallBegan, Execution, SandboxStart, TurnId
from swe_rollout.sandbox.base import (
    Markable,
    Role,
    Sandbox,
    SandboxDelta,
    SandboxMark,
    SandboxRequest,
    Snapshots,
)
from swe_rollout.sandbox.wrapped import WrappedSnapshots
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, Generation
from swe_rollout.worker.publishing import PublishingSandboxes, publishing_engine
from unit.telemetry.telemetry_parts import EPISODE
from unit.worker.work_parts import OneSandbox, TableSandbox
from unit.worker.worker_parts import Listener

FOUND = Generation((7, 8), (-0.5, -0.5), FinishReason.STOP, prompt_tokens=3, cached_tokens=2)
REQUEST = SandboxRequest(EPISODE, Role.GRADER, "image", "/testbed")


@dataclass
class Engine(TokenEngine):
    """Answers, fails, or waits on the episode's clock."""

    error: BaseException | None = None
    pause_s: float = 0.0
    released: list[EpisodeId] = field(default_factory=list)
    closed: bool = False

    async def info(self) -> EngineInfo:
        return EngineInfo("m", None, None, None)

    async def generate(self, request: GenerateRequest) -> Generation:
        if self.error is not None:
            raise self.error
        if self.pause_s and request.clock is not None:
            with request.clock.paused():
                await asyncio.sleep(self.pause_s)
        return FOUND

    def release(self, episode: EpisodeId) -> None:
        self.released.append(episode)

    async def aclose(self) -> None:
        self.closed = True


class Chat(ChatEngine):
    async def info(self) -> EngineInfo:
        return EngineInfo("m", None, None, None)

    async def respond(self, request: ChatRequest) -> ChatResponse:
        del request
        return ChatResponse(AssistantMessage("hi"), FinishReason.STOP, ChatUsage(10, 4, 6))


def request(clock: Deadline | None = None) -> GenerateRequest:
    ids = cast("InputIds", np.arange(3))
    return GenerateRequest(
        EPISODE,
        turn=4,
        input_ids=ids,
        max_new_tokens=9,
        sampling=Sampling(),
        stop_token_ids=(),
        branch=2,
        clock=clock,
    )


def observed(engine: TokenEngine, observer: Listener) -> TokenEngine:
    return cast("TokenEngine", publishing_engine(engine, observer, lambda _: "sglang:m"))


async def test_a_call_returns_what_the_engine_said_and_is_reported() -> None:
    observer, engine = Listener(), Engine()
    wrapped = observed(engine, observer)
    assert isinstance(wrapped, TokenEngine)
    assert not isinstance(wrapped, ChatEngine)
    assert await wrapped.generate(request()) is FOUND
    assert observer.of(EngineCallBegan) == [EngineCallBegan(TurnId(EPISODE, 4, 2))]
    (call,) = observer.of(EngineCall)
    assert (call.turn, call.policy, call.max_new_tokens) == (TurnId(EPISODE, 4, 2), "sglang:m", 9)
    assert (call.prompt_tokens, call.cached_tokens, call.sampled_tokens) == (3, 2, 2)
    assert (call.finish_reason, call.span.error, call.waited_s) == (FinishReason.STOP, "", 0)
    wrapped.release(EPISODE)
    await wrapped.aclose()
    assert (engine.released, engine.closed) == ([EPISODE], True)
    assert (await wrapped.info()).model == "m"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EngineError("no"), EngineError),
        (ConnectionResetError(), EngineError),
        (KeyError("ids"), ExtensionFailedError),
        (asyncio.CancelledError(), ExtensionFailedError),
    ],
)
async def test_an_error_has_an_owner_and_is_reported_by_its_class_alone(
    error: BaseException, kind: type[Exception]
) -> None:
    observer = Listener()
    with pytest.raises(kind):
        await observed(Engine(error=error), observer).generate(request())
    (call,) = observer.of(EngineCall)
    assert (call.span.error, call.finish_reason) == (kind.__name__, None)


async def test_time_on_which_the_episodes_clock_stood_still_is_a_wait() -> None:
    observer = Listener()
    await observed(Engine(pause_s=0.2), observer).generate(request(Deadline(600)))
    await observed(Engine(), observer).generate(request(Deadline(600)))
    waited, prompt = observer.of(EngineCall)
    assert 0 < waited.waited_s <= waited.span.seconds
    assert waited.waited_s == pytest.approx(waited.span.seconds, rel=0.5)
    assert prompt.waited_s == 0


async def test_a_chat_engine_stays_one_and_its_api_counts_the_tokens() -> None:
    observer = Listener()
    wrapped = publishing_engine(Chat(), observer, lambda _: "openai:m")
    assert isinstance(wrapped, ChatEngine)
    assert not isinstance(wrapped, TokenEngine)
    acting = ACTING.set(3)
    asked = ChatRequest(EPISODE, 1, "", (UserMessage("x"),), (), 5, Sampling())
    assert (await wrapped.respond(asked)).message.text == "hi"
    ACTING.reset(acting)
    (call,) = observer.of(EngineCall)
    assert call.turn == TurnId(EPISODE, 1, 3)
    assert (call.prompt_tokens, call.sampled_tokens, call.cached_tokens) == (10, 4, 6)


async def test_starts_and_commands_are_reported_with_the_role() -> None:
    observer, table = Listener(), TableSandbox({"ls": "a"})
    sandbox = await PublishingSandboxes(OneSandbox(table), observer).start(REQUEST)
    assert isinstance(sandbox, Sandbox)
    assert not isinstance(sandbox, Snapshots)
    acting = ACTING.set(1)
    assert (await sandbox.exec("ls", timeout_s=3.0)).stdout == b"a"
    ACTING.reset(acting)
    with pytest.raises(SandboxError):
        await sandbox.exec("lose")
    await sandbox.close()
    assert (table.timeouts, table.closed) == ([3.0, 120.0], 1)
    (start,) = observer.of(SandboxStart)
    assert (start.episode, start.role, start.is_warm, start.span.error) == (
        EPISODE,
        "grader",
        False,
        "",
    )
    ran, lost = observer.of(Execution)
    assert (ran.role, ran.exit_code, ran.branch, ran.span.error) == ("grader", 0, 1, "")
    assert (lost.exit_code, lost.branch, lost.span.error) == (None, 0, "SandboxError")
    assert (ran.timed_out, lost.timed_out) == (False, False)


async def test_a_start_that_fails_is_reported() -> None:
    observer = Listener()
    with pytest.raises(SandboxError):
        await PublishingSandboxes(OneSandbox(TableSandbox(), refuses=True), observer).start(REQUEST)
    assert [each.span.error for each in observer.of(SandboxStart)] == ["SandboxError"]


@dataclass
class WarmSandbox(TableSandbox):
    """Was there before it was requested, and has snapshots."""

    is_warm: bool = True
    applied: list[SandboxDelta] = field(default_factory=list)

    async def changes(self, *, since: int | None = None) -> SandboxDelta:
        return SandboxDelta(since or 1)

    async def apply(self, delta: SandboxDelta) -> None:
        self.applied.append(delta)


async def test_a_sandbox_with_snapshots_keeps_them_and_a_warm_one_is_told_apart() -> None:
    observer, warm = Listener(), WarmSandbox()
    sandbox = await PublishingSandboxes(OneSandbox(warm), observer).start(REQUEST)
    assert isinstance(sandbox, Snapshots)
    delta = await sandbox.changes(since=5)
    await sandbox.apply(delta)
    assert (delta.number, warm.applied) == (5, [delta])
    assert [each.is_warm for each in observer.of(SandboxStart)] == [True]


class Finds(OneSandbox):
    """Finds the sandbox of a mark."""

    async def attach(
        self, request: SandboxRequest, mark: SandboxMark, *, life: int, delta: int
    ) -> Sandbox | None:
        assert (request, life, delta) == (REQUEST, 2, 3)
        return await self.start(request) if mark.effects else None


class MarkedSandbox(WarmSandbox):
    """A sandbox that others find again."""

    async def mark(self) -> SandboxMark:
        return SandboxMark("pod", "uid", 7)


async def test_a_sandbox_that_is_found_again_is_observed_and_keeps_its_mark() -> None:
    observer, mark = Listener(), SandboxMark("pod", "uid", 7)
    wrapped = PublishingSandboxes(Finds(MarkedSandbox()), observer)
    sandbox = await wrapped.attach(REQUEST, mark, life=2, delta=3)
    assert isinstance(sandbox, WrappedSnapshots)
    assert await sandbox.mark() == mark
    assert observer.of(SandboxStart) == []
    assert await wrapped.attach(REQUEST, SandboxMark("pod", "uid", 0), life=2, delta=3) is None


async def test_where_nothing_can_be_found_again_nothing_is() -> None:
    wrapped = PublishingSandboxes(OneSandbox(WarmSandbox()), Listener())
    assert await wrapped.attach(REQUEST, SandboxMark("pod", "uid", 7), life=2, delta=3) is None
    sandbox = await wrapped.start(REQUEST)
    assert isinstance(sandbox, Markable)
    assert await sandbox.mark() is None
