"""What a worker waits for, and what a failure is forgiven for."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import replace

import pytest

from swe_rollout.cluster.api_error import api_error
from swe_rollout.engine.base import EngineInfo, GenerateRequest
from swe_rollout.errors import (
    PrerequisiteError,
    SandboxError,
    SweRolloutError,
    UnreachableError,
)
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.spec.status import ConditionType
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.turn import Generation
from swe_rollout.worker import service_health as health
from swe_rollout.worker.service_health import (
    Conditions,
    EngineMonitor,
    StoreMonitor,
)
from swe_rollout.worker.start_guard import GuardedSandboxes
from unit.worker.worker_parts import BUSY, DENIED, LOST, NO_ENGINE
from waits import PATIENCE_S, until


class Engine:
    """An engine that can be switched off."""

    def __init__(self) -> None:
        self.is_on = True
        self.asked = 0
        self.paused_s = 0.0

    async def info(self) -> EngineInfo:
        self.asked += 1
        if not self.is_on:
            raise UnreachableError("no engine answers", why="it is off", fix="start it")
        return EngineInfo("model", None, None, None)

    async def generate(self, request: GenerateRequest) -> Generation:
        raise NotImplementedError(request)

    def release(self, episode: EpisodeId) -> None:
        """Nothing is kept."""

    async def aclose(self) -> None:
        """Nothing is held."""


async def still_wanted() -> bool:
    """The job exists."""
    return True


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_PAUSE_S", "LONGEST_PAUSE_S", "PROBE_S", "BUSY_S"):
        monkeypatch.setattr(health, name, 0.01)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def conditions() -> Conditions:
    return Conditions()


@pytest.fixture
def watch(engine: Engine, conditions: Conditions) -> EngineMonitor:
    return EngineMonitor(engine, conditions, is_wanted=still_wanted)


async def test_a_lost_engine_excuses_and_holds_until_it_answers(
    engine: Engine, watch: EngineMonitor, conditions: Conditions
) -> None:
    engine.is_on = False
    assert await watch.excuses(NO_ENGINE)
    (trouble,) = conditions.unmet
    assert (trouble.condition, trouble.reason) == (ConditionType.MODEL_READY, "Unreachable")
    waiting = asyncio.create_task(watch.ready())
    looking = asyncio.create_task(watch.run())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    engine.is_on = True
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert conditions.unmet == ()
    looking.cancel()


async def test_an_engine_that_goes_away_is_noticed_between_episodes(
    engine: Engine, watch: EngineMonitor, conditions: Conditions
) -> None:
    looking = asyncio.create_task(watch.run())
    await asyncio.wait_for(watch.ready(), PATIENCE_S)
    engine.is_on = False
    await until(lambda: ConditionType.MODEL_READY in conditions)
    looking.cancel()


async def test_a_run_that_somebody_watches_waits_for_its_engine_only_so_long(
    engine: Engine, conditions: Conditions
) -> None:
    watch = EngineMonitor(engine, conditions, engine_patience_s=0.02)
    assert not await watch.excuses(BUSY)
    engine.is_on = False
    assert await watch.excuses(NO_ENGINE)
    with pytest.raises(UnreachableError, match="no engine answers: it is off") as raised:
        await watch.ready()
    assert raised.value.fix == "start it"


async def test_a_probe_that_an_engine_of_ones_own_breaks_ends_nothing(
    engine: Engine, watch: EngineMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> EngineInfo:
        engine.asked += 1
        raise KeyError("model")

    monkeypatch.setattr(engine, "info", broken)
    looking = asyncio.create_task(watch.run())
    await until(lambda: engine.asked > 1)
    assert not looking.done()
    assert not await watch.excuses(NO_ENGINE)
    looking.cancel()


async def test_an_engine_that_stays_paused_is_told_of_until_it_goes_on(
    watch: EngineMonitor, conditions: Conditions, engine: Engine
) -> None:
    looking = asyncio.create_task(watch.run())
    engine.paused_s = health.PAUSE_S - 1  # an update of weights
    await asyncio.sleep(0.05)
    assert not conditions.unmet
    engine.paused_s = health.PAUSE_S + 1
    await until(lambda: conditions.unmet)
    (unmet,) = conditions.unmet
    assert (unmet.condition, unmet.reason) == (ConditionType.MODEL_READY, "EnginePaused")
    await asyncio.wait_for(watch.ready(), PATIENCE_S)
    engine.paused_s = 0.0
    await until(lambda: not conditions.unmet)
    looking.cancel()


def test_a_store_that_can_be_read_but_not_written_is_not_well(conditions: Conditions) -> None:
    heard = StoreMonitor(conditions)
    heard("write", UnreachableError("the store can't write a", why="no space left", fix="free it"))
    heard("read", None)
    heard("list", None)
    (unmet,) = conditions.unmet
    assert unmet.condition is ConditionType.STORAGE_READY
    assert unmet.message == "the store can't write a: no space left. free it"
    heard("read", UnreachableError("the store can't read b"))
    heard("write", None)
    assert ConditionType.STORAGE_READY in conditions
    heard("read", None)
    assert conditions.unmet == ()


def test_people_are_told_once_when_it_begins_and_once_when_it_ends() -> None:
    notes: list[str] = []
    conditions = Conditions(notes.append)
    for _ in range(3):
        conditions.fail(ConditionType.STORAGE_READY, UnreachableError("no store", why="it is full"))
    conditions.clear(ConditionType.STORAGE_READY)
    conditions.clear(ConditionType.STORAGE_READY)
    assert notes == ["waiting: no store: it is full", "going on: the store takes what it is given"]


@pytest.mark.parametrize("condition", health._MET)
def test_every_condition_that_a_worker_marks_has_words_for_its_end(
    condition: ConditionType,
) -> None:
    notes: list[str] = []
    conditions = Conditions(notes.append)
    conditions.mark(condition, "Error", "x")
    conditions.clear(condition)
    assert notes == ["waiting: x", f"going on: {health._MET[condition]}"]


async def test_an_engine_that_answers_does_not_excuse_a_call_it_lost(watch: EngineMonitor) -> None:
    assert not await watch.excuses(NO_ENGINE)


async def test_an_engine_without_room_excuses_and_is_told(
    watch: EngineMonitor, conditions: Conditions
) -> None:
    assert await watch.excuses(BUSY)
    assert [trouble.reason for trouble in conditions.unmet] == ["Unavailable"]


@pytest.mark.threat(point=26)
async def test_a_condition_does_not_quote_what_answered(
    watch: EngineMonitor, conditions: Conditions
) -> None:
    told = replace(BUSY, message="the engine accepts no more work: HTTP 503: root:x:0:0")
    assert await watch.excuses(told)
    (unmet,) = conditions.unmet
    assert "root:x" not in unmet.message
    assert "lower spec.parallelism" in unmet.message


async def test_other_failures_are_not_the_engines(engine: Engine, watch: EngineMonitor) -> None:
    engine.is_on = False
    assert not await watch.excuses(LOST)
    assert engine.asked == 0


@pytest.mark.threat(point=28)
@pytest.mark.parametrize("failure", [LOST, DENIED])
async def test_a_sandbox_that_went_with_its_job_costs_no_attempt(
    engine: Engine, conditions: Conditions, failure: Failure
) -> None:
    async def deleted() -> bool:
        return False

    assert await EngineMonitor(engine, conditions, is_wanted=deleted).excuses(failure)
    assert not await EngineMonitor(engine, conditions, is_wanted=still_wanted).excuses(failure)


@pytest.mark.parametrize(
    "down", [UnreachableError("no store"), *(api_error("list", code, b"") for code in (429, 503))]
)
async def test_a_service_is_waited_for_and_told_of_until_it_answers(
    conditions: Conditions, down: SweRolloutError
) -> None:
    answers = iter([down, down])
    seen: list[bool] = []

    async def call() -> int:
        seen.append(ConditionType.STORAGE_READY in conditions)
        for error in answers:
            raise error
        return 7

    assert await conditions.until_reached(ConditionType.STORAGE_READY, call) == 7
    assert seen == [False, True, True]
    assert conditions.unmet == ()


async def test_what_is_the_jobs_own_fault_is_not_waited_for(conditions: Conditions) -> None:
    async def call() -> None:
        raise PrerequisiteError("no tokenizer")

    with pytest.raises(PrerequisiteError):
        await conditions.until_reached(ConditionType.MODEL_READY, call)


def test_a_long_message_is_cut(conditions: Conditions) -> None:
    conditions.mark(ConditionType.MODEL_READY, "_TimedOutError", "x" * 5000)
    (trouble,) = conditions.unmet
    assert trouble.reason == "TimedOut"
    assert len(trouble.message) < 1100


class Provider:
    """A provider of sandboxes that has none, until it has."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.error: SandboxError | None = SandboxError("no image", fix="push it")
        self.swept: list[EpisodeId] = []
        self.foreseen: list[SandboxRequest] = []
        self.closed = False

    async def start(self, request: SandboxRequest) -> Sandbox:
        assert request.role is Role.AGENT
        if self.error is not None:
            raise self.error
        return self.sandbox

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        self.foreseen = [*requests]

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        self.swept += episodes

    async def aclose(self) -> None:
        self.closed = True


async def test_the_last_start_that_failed_is_told_until_one_succeeds(
    conditions: Conditions,
) -> None:
    sandbox: Sandbox = object()  # type: ignore[assignment]
    provider = Provider(sandbox)
    watched = GuardedSandboxes(provider, conditions, patience_s=1, marks_each=True)
    request = SandboxRequest(EpisodeId("job", "one", 0), Role.AGENT, "image:1", "/")
    with pytest.raises(SandboxError):
        await watched.start(request)
    assert [trouble.message for trouble in conditions.unmet] == ["no image. push it"]
    provider.error = None
    assert await watched.start(request) is sandbox
    assert conditions.unmet == ()
    watched.prewarm([request])
    assert provider.foreseen == [request]
    await watched.delete_orphans([request.episode])
    await watched.aclose()
    assert (provider.swept, provider.closed) == ([request.episode], True)
