"""Starts while nothing starts: which wait, who is tried, and at whose expense."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

import pytest

from swe_rollout.errors import EpisodeError, SandboxError, UnreachableError
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.pods.diagnose import UnschedulableError
from swe_rollout.spec.status import ConditionType
from swe_rollout.types.episode import EpisodeId
from swe_rollout.worker import start_guard
from swe_rollout.worker.service_health import Conditions
from swe_rollout.worker.start_guard import FAILURES, GuardedSandboxes
from waits import PATIENCE_S, until

FULL = OSError(28, "No space left on device")


class Platform:
    """Starts sandboxes, or fails with the error of the moment; `broken` tasks always fail."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.broken: Collection[str] = ()
        self.started: list[str] = []
        self.tried: list[str] = []
        self.at_once = self.most_at_once = 0
        self.foreseen: list[SandboxRequest] = []
        self.lasts = asyncio.Event()
        self.lasts.set()

    async def start(self, request: SandboxRequest) -> Sandbox:
        task = request.episode.instance
        self.tried.append(task)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            await self.lasts.wait()
            if self.error is not None:
                raise self.error
            if task in self.broken:
                raise SandboxError(f"{task} does not start")
            self.started.append(task)
            return object()  # type: ignore[return-value]
        finally:
            self.at_once -= 1

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        self.foreseen = [*requests]

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        """There are none."""

    async def aclose(self) -> None:
        """Nothing is held."""


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_guard, "FIRST_PAUSE_S", 0.002)
    monkeypatch.setattr(start_guard, "LONGEST_PAUSE_S", 0.02)


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def conditions(notes: list[str]) -> Conditions:
    return Conditions(notes.append)


@pytest.fixture
def guarded(platform: Platform, conditions: Conditions) -> GuardedSandboxes:
    return GuardedSandboxes(platform, conditions, patience_s=60)


def request(task: int | str, sample: int = 0) -> SandboxRequest:
    return SandboxRequest(EpisodeId("job", str(task), sample), Role.AGENT, "image:1", "/")


async def failing(guarded: GuardedSandboxes, count: int) -> list[Exception]:
    """Start one sandbox after the other, of a task each; what was raised."""
    raised: list[Exception] = []
    for task in range(count):
        try:
            await guarded.start(request(task))
        except Exception as error:  # noqa: BLE001
            raised.append(error)
    return raised


async def test_after_failures_in_a_row_starts_wait_one_is_tried_and_all_get_their_sandbox(
    platform: Platform, guarded: GuardedSandboxes, conditions: Conditions, notes: list[str]
) -> None:
    platform.error = FULL
    raised = await failing(guarded, FAILURES - 1)
    assert [type(each) for each in raised] == [SandboxError] * (FAILURES - 1)
    assert notes == []

    platform.most_at_once = 0
    waiting = [asyncio.create_task(guarded.start(request("first")))]
    await until(lambda: guarded.holds)
    waiting += [asyncio.create_task(guarded.start(request(task))) for task in range(50)]
    tried = len(platform.tried)
    await until(lambda: len(platform.tried) > tried + 3)
    assert platform.most_at_once == 1
    assert not any(task.done() for task in waiting)
    (unmet,) = conditions.unmet
    assert unmet.condition is ConditionType.SANDBOXES_READY
    assert "one at a time is tried" in unmet.message
    assert "No space left" in unmet.message

    platform.error = None
    await asyncio.gather(*waiting)
    assert len(platform.started) == 51
    assert conditions.unmet == ()
    assert not guarded.holds
    waits, goes_on = notes
    assert waits.startswith("waiting: no sandbox starts")
    assert goes_on == "going on: sandboxes start"


async def test_pauses_grow_so_that_a_long_outage_costs_few_calls(
    platform: Platform, guarded: GuardedSandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        if seconds:
            paused.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    platform.error = FULL
    await failing(guarded, FAILURES - 1)
    waiting = asyncio.create_task(guarded.start(request("last")))
    while len(paused) < 6:
        await sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert paused[:6] == [0.002, 0.004, 0.008, 0.016, 0.02, 0.02]


async def test_nothing_is_prewarmed_while_nothing_starts(
    platform: Platform, guarded: GuardedSandboxes
) -> None:
    guarded.prewarm([request(1)])
    assert platform.foreseen
    platform.error = FULL
    await failing(guarded, FAILURES - 1)
    waiting = asyncio.create_task(guarded.start(request("last")))
    await until(lambda: guarded.holds)
    assert platform.foreseen == []
    guarded.prewarm([request(1)])
    assert platform.foreseen == []
    platform.error = None
    await waiting
    guarded.prewarm([request(1)])
    assert platform.foreseen


async def test_a_start_that_succeeds_in_between_begins_a_new_row(
    platform: Platform, guarded: GuardedSandboxes
) -> None:
    for _ in range(5):
        platform.error = FULL
        assert len(await failing(guarded, FAILURES - 1)) == FAILURES - 1
        platform.error = None
        await guarded.start(request("good"))
    assert not guarded.holds


async def test_samples_of_one_task_are_held_too_for_its_image_may_be_fine(
    platform: Platform, guarded: GuardedSandboxes
) -> None:
    platform.error = FULL
    for sample in range(FAILURES - 1):
        with pytest.raises(SandboxError):
            await guarded.start(request("one", sample))
    waiting = asyncio.create_task(guarded.start(request("one")))
    await until(lambda: guarded.holds)
    platform.error = None
    await asyncio.wait_for(waiting, PATIENCE_S)


async def test_one_broken_task_fails_before_a_platform_would(
    platform: Platform, guarded: GuardedSandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_guard, "ONE_TASK_PATIENCE_S", 0.05)
    platform.broken = {"broken"}
    for sample in range(8):
        with pytest.raises(SandboxError):
            await asyncio.wait_for(guarded.start(request("broken", sample)), PATIENCE_S)
    await asyncio.wait_for(guarded.start(request("good")), PATIENCE_S)
    assert not guarded.holds


async def test_broken_tasks_are_tried_in_turn_until_another_one_starts(
    platform: Platform, guarded: GuardedSandboxes
) -> None:
    platform.broken = {"0", "1", "2"}
    await failing(guarded, 2)
    broken = asyncio.create_task(guarded.start(request(2)))
    await until(lambda: guarded.holds)
    await asyncio.wait_for(guarded.start(request("good")), PATIENCE_S)
    # From then on what it fails of is its own.
    with pytest.raises(SandboxError):
        await asyncio.wait_for(broken, PATIENCE_S)
    assert not guarded.holds


async def test_where_only_broken_tasks_are_left_they_fail_after_a_while(
    platform: Platform, conditions: Conditions
) -> None:
    guarded = GuardedSandboxes(platform, conditions, patience_s=0.05)
    platform.error = FULL
    await failing(guarded, FAILURES - 1)
    with pytest.raises(SandboxError):
        await asyncio.wait_for(guarded.start(request("last")), PATIENCE_S)
    assert guarded.holds


@pytest.mark.parametrize(
    "error",
    [
        UnschedulableError("no room"),
        SandboxError("no such image", retryable=False),
    ],
)
async def test_what_lacks_room_or_stands_says_nothing_about_others(
    platform: Platform, guarded: GuardedSandboxes, error: EpisodeError
) -> None:
    platform.error = error
    raised = await failing(guarded, 4 * FAILURES)
    assert raised == [error] * 4 * FAILURES
    assert not guarded.holds


async def test_a_cluster_that_goes_away_stops_nothing_but_one_that_was_never_there_does(
    platform: Platform, guarded: GuardedSandboxes
) -> None:
    platform.error = UnreachableError("the API server does not respond")
    with pytest.raises(UnreachableError):
        await guarded.start(request(0))
    platform.error = None
    await guarded.start(request(0))
    platform.error = UnreachableError("the API server does not respond")
    waiting = asyncio.create_task(guarded.start(request(1)))
    await until(lambda: guarded.holds)
    platform.error = None
    await asyncio.wait_for(waiting, PATIENCE_S)


async def test_a_start_that_waits_can_be_cancelled_and_the_others_go_on(
    platform: Platform, guarded: GuardedSandboxes
) -> None:
    platform.error = FULL
    await failing(guarded, FAILURES - 1)
    first, second = (asyncio.create_task(guarded.start(request(each))) for each in ("a", "b"))
    await until(lambda: guarded.holds)
    first.cancel()
    platform.error = None
    assert await asyncio.wait_for(second, PATIENCE_S)
    assert (await asyncio.gather(first, return_exceptions=True))[0].__class__ is (
        asyncio.CancelledError
    )
