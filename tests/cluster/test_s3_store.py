"""The store on a real S3 server: the same promises as on a folder."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest

from swe_rollout.errors import StoreError, UnreachableError, UsageError
from swe_rollout.spec.job import RolloutJob
from swe_rollout.store.bucket import create_object, read_object
from swe_rollout.store.layout import JobRef, trajectory_key
from swe_rollout.store.store import Store
from swe_rollout.store.summary import summarise
from swe_rollout.types.episode import EpisodeId, StopReason, Timing
from swe_rollout.types.trajectory import Trajectory

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        "AWS_ENDPOINT_URL" not in os.environ,
        reason='needs an S3 server: eval "$(scripts/dev-s3 up)"',
    ),
]

BUCKET = "rollouts"


def job(**spec: object) -> RolloutJob:
    base: dict[str, object] = {"dataset": {"releasePairs": {}}, "policy": {"scripted": {}}}
    return RolloutJob.model_validate({"metadata": {"name": "demo"}, "spec": base | spec})


def trajectory(instance: str = "demo__one-1", sample: int = 0, seed: int = 1) -> Trajectory:
    tokens = 20_000
    return Trajectory(
        episode=EpisodeId("demo", instance, sample),
        policy="scripted:gold",
        token_ids=tuple(range(tokens)),
        loss_mask=(1,) * tokens,
        logprobs=(-0.5,) * tokens,
        segments=(),
        turns=(),
        stop_reason=StopReason.SUBMITTED,
        patch="é" * 1000,
        verdict=None,
        reward=None,
        failure=None,
        attempt=1,
        seed=seed,
        timing=Timing(),
        spec_digest="0123456789ab",
        software={},
        finished_at="2026-01-02T03:04:05.678+00:00",
    )


@pytest.fixture
def uri() -> str:
    return f"s3://{BUCKET}/test-store/{uuid4().hex}"


@pytest.fixture
def opened(uri: str) -> Callable[[], Store]:
    """A new client of the same store, as another worker would have."""
    return lambda: Store.open(uri)


async def test_a_trajectory_is_committed_once_and_the_first_one_stays(
    opened: Callable[[], Store],
) -> None:
    first = trajectory()
    assert await opened().commit(first)
    assert not await opened().commit(replace(first, seed=2))
    assert await opened().read(first.episode) == first


async def test_of_many_workers_that_commit_at_the_same_time_one_wins(
    opened: Callable[[], Store],
) -> None:
    rivals = [trajectory(seed=seed) for seed in range(12)]
    won = await asyncio.gather(*(opened().commit(rival) for rival in rivals))
    assert won.count(True) == 1
    assert await opened().read(rivals[0].episode) == rivals[won.index(True)]


async def test_a_job_begins_is_listed_and_summed_up(opened: Callable[[], Store]) -> None:
    tasks = {"a": "1", "b": "2"}
    begun = await opened().begin(job(samples=2), tasks)
    assert await opened().begin(job(samples=2, parallelism=9), tasks) == begun
    with pytest.raises(UsageError, match="another spec"):
        await opened().begin(job(limits={"turns": 3}), tasks)
    await asyncio.gather(*(opened().commit(trajectory(i, s)) for i in "ba" for s in (1, 0)))
    read = opened().trajectories("demo", on_damage=print)
    found = [(t.episode.instance, t.episode.sample) async for t in read]
    assert found == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    summary = await summarise(opened(), "demo")
    assert (summary.episodes, summary.committed, summary.mean_reward) == (4, 4, None)
    assert await opened().jobs() == ("demo",)


async def test_workers_that_begin_a_job_at_the_same_time_agree(
    opened: Callable[[], Store],
) -> None:
    # Nothing that trajectories don't depend on has to be the same for all of them.
    jobs = [job(samples=2, parallelism=1 + number) for number in range(12)]
    tasks = {"a": "1", "b": "2"}
    begun = await asyncio.gather(*(opened().begin(each, tasks) for each in jobs))
    assert len({each.plan.instances for each in begun}) == 1
    assert begun[0].plan == await opened().plan("demo")


@pytest.mark.threat(point=20)
async def test_runs_that_grow_a_job_at_the_same_time_lose_nothing(
    opened: Callable[[], Store],
) -> None:
    jobs = [job(samples=1 + number) for number in range(6)]
    await asyncio.gather(
        *(opened().begin(each, {"a": "1", f"t{n}": ""}) for n, each in enumerate(jobs))
    )
    planned = {each.id: each.samples for each in (await opened().plan("demo")).instances}
    assert planned == {"a": 6, **{f"t{n}": n + 1 for n in range(6)}}


@pytest.mark.threat(point=20)
async def test_a_damaged_record_is_moved_aside(opened: Callable[[], Store], uri: str) -> None:
    record = trajectory()
    await create_object(f"{uri}/{trajectory_key(record.episode)}", b"damaged")
    assert await opened().set_aside(record.episode) is not None
    assert await opened().committed("demo") == frozenset()
    assert await opened().commit(record)
    assert await opened().set_aside(record.episode) is None


async def test_more_episodes_than_one_page_of_a_listing_are_all_found(
    opened: Callable[[], Store], uri: str
) -> None:
    wanted = {EpisodeId("demo", "many", sample) for sample in range(1050)}
    limit = asyncio.Semaphore(32)

    async def write(episode: EpisodeId) -> None:
        async with limit:
            await create_object(f"{uri}/{trajectory_key(episode)}", b"x")

    await asyncio.gather(*map(write, wanted))
    assert await opened().committed("demo") == wanted


async def test_a_job_address_and_single_objects_are_read(
    opened: Callable[[], Store], uri: str
) -> None:
    await create_object(f"{uri}/demo/report.json", b"{}")
    assert await read_object(f"{uri}/demo/report.json") == b"{}"
    ref = JobRef.parse(f"{uri}/demo")
    assert (ref.store_uri, ref.job) == (uri, "demo")
    with pytest.raises(FileNotFoundError):
        await read_object(f"{uri}/demo/absent.json")
    assert await opened().committed("no-such-job") == frozenset()


async def test_wrong_credentials_are_named_and_never_shown(
    opened: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "an-utterly-wrong-secret")
    with pytest.raises(UnreachableError, match="can't list") as caught:
        await opened().plan("demo")
    told = f"{caught.value} {caught.value.fix}"
    assert "credentials" in caught.value.fix
    assert "an-utterly-wrong-secret" not in told
    assert os.environ["AWS_ACCESS_KEY_ID"] not in told


async def test_a_server_that_is_down_is_told_within_seconds(
    opened: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        began = time.monotonic()
        with pytest.raises(StoreError, match="can't write") as caught:
            await opened().commit(trajectory())
        assert time.monotonic() - began < 60
    assert caught.value.retryable
