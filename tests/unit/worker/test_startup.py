"""A worker that starts again: what its predecessors committed is counted, damage stops nothing."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from swe_rollout.cluster.objects import OwnerReference
from swe_rollout.datasets.base import LoadedDataset
from swe_rollout.journal.entries import Chunk, compress, encode
from swe_rollout.spec.job import RolloutJob
from swe_rollout.store.journals import JournalRef
from swe_rollout.store.layout import trajectory_key
from swe_rollout.store.plans import Owner
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.worker.backlog import WHOLE, begin
from swe_rollout.worker.service_health import Conditions
from swe_rollout.worker.startup import WorkerStartup
from unit.store.records import UNRESOLVED, job, trajectory


async def _still_wanted() -> bool:
    return True


def startup_of(job: RolloutJob) -> WorkerStartup:
    return WorkerStartup(
        job=job,
        shard=WHOLE,
        owner=OwnerReference(api_version="v1", kind="RolloutJob", name="demo", uid="u"),
        store_owner=Owner("a", "0123"),
        conditions=Conditions(),
        is_wanted=_still_wanted,
    )


@pytest.mark.threat(point=20)
async def test_a_damaged_record_is_counted_as_a_failure_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    store = Store.open(f"file://{tmp_path}/runs")
    tasks = [Instance(instance_id=name, problem_statement="", image="i") for name in ("a", "b")]
    await begin(store, job(), tasks)
    await store.commit(trajectory("a", 0))
    await store.commit(trajectory("a", 1, UNRESOLVED))
    await store.commit(trajectory("b", 0))
    (tmp_path / "runs" / trajectory_key(trajectory("b", 0).episode)).write_bytes(b"damaged")
    startup = startup_of(job())

    backlog = await begin(store, job(), tasks)
    progress, samplers = await startup._counted(store, backlog)

    found = progress.snapshot(running=0, finished=False)
    assert (found.episodes.total, found.episodes.committed) == (4, 2)
    assert (found.episodes.resolved, found.episodes.unresolved) == (1, 1)
    assert found.failures == {"DamagedRecord": 1}
    assert {sampler.policy for sampler in samplers} == {"scripted:gold"}
    assert [str(attempt.episode) for attempt in backlog.todo] == ["demo/b/1"]


class Sandboxes:
    """Remembers whose sandboxes were ended."""

    def __init__(self) -> None:
        self.swept: list[list[str]] = []

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        self.swept.append(sorted(map(str, episodes)))


async def test_sandboxes_of_episodes_that_go_on_are_spared_until_they_were_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16, points 2 and 7: none is ended too early, and none is left."""
    store = Store.open(f"file://{tmp_path}/runs")
    at = job().spec.store.model_copy(update={"uri": f"file://{tmp_path}/runs"})
    spec = job().spec.model_copy(update={"store": at})
    wanted = job().model_copy(update={"spec": spec})
    tasks = [Instance(instance_id=name, problem_statement="", image="i") for name in ("a", "b")]
    journals = store.journals("demo")
    for episode in (EpisodeId("demo", "a", 1), EpisodeId("demo", "b", 0)):
        ref = JournalRef(episode, 1, 0)
        await journals.create(ref, 0, compress(encode(Chunk("dead", place=ref.place(0)))))
    sandboxes = Sandboxes()

    async def loaded(_: WorkerStartup) -> LoadedDataset:
        return LoadedDataset(tuple(tasks))

    monkeypatch.setattr(WorkerStartup, "_load", loaded)
    monkeypatch.setattr(WorkerStartup, "_sandboxes", lambda *_: sandboxes)
    startup = startup_of(wanted)
    async with AsyncExitStack() as stack:
        resources = await startup.resources(stack)
        assert resources.journals is not None
        assert sandboxes.swept == [["demo/a/0", "demo/b/1"]]
        resources.journals._unplayed.discard(EpisodeId("demo", "a", 1))
    assert sandboxes.swept[1:] == [["demo/b/0"]]
