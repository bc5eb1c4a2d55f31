"""What a job or a worker has to do, from the spec, the plan and the committed episodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from swe_rollout.context import JobContext
from swe_rollout.errors import UsageError
from swe_rollout.store.plans import Owner
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Expected, Instance
from swe_rollout.types.trajectory import TokenPath
from swe_rollout.worker.backlog import Backlog, Sampler, Shard, begin
from unit.store.records import job, trajectory


def instance(name: str, **changes: object) -> Instance:
    made = Instance(instance_id=name, problem_statement=f"fix {name}", image="image:1")
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(f"file://{tmp_path}/runs")


def names(backlog: Backlog) -> list[str]:
    return [f"{a.episode.instance}/{a.episode.sample}" for a in backlog.todo]


async def test_what_is_committed_is_not_to_do(store: Store) -> None:
    tasks = [instance("one"), instance("two")]
    await begin(store, job(), tasks)
    await store.commit(trajectory("two", 0))
    backlog = await begin(store, job(), tasks)
    assert names(backlog) == ["one/0", "one/1", "two/1"]
    assert (len(backlog.attempts), len(backlog.todo)) == (4, 3)
    assert backlog.committed == {EpisodeId("demo", "two", 0)}


@pytest.mark.threat(point=20)
async def test_a_larger_job_runs_what_is_new_and_a_smaller_one_its_part(store: Store) -> None:
    one, two = instance("one"), instance("two")
    await begin(store, job(samples=1), [one])
    await store.commit(replace(trajectory("one", 0), instance_digest=one.digest))

    larger = await begin(store, job(samples=2), [one, two])
    assert names(larger) == ["one/1", "two/0", "two/1"]
    assert larger.notes == (f"{store.uri}/demo grows from 1 to 4 episodes",)

    smaller = await begin(store, job(samples=1), [two])
    assert (names(smaller), smaller.committed) == (["two/0"], frozenset())


@pytest.mark.threat(point=20)
async def test_the_same_id_for_another_task_is_refused(store: Store) -> None:
    await begin(store, job(), [instance("one")])
    for changed in (
        instance("one", problem_statement="fix something else"),
        instance("one", image="image:2"),
        instance("one", expected=Expected(fail_to_pass=("t::new",))),
        instance("one", base_commit="abc"),
    ):
        with pytest.raises(UsageError, match="other tasks of the same names"):
            await begin(store, job(), [changed])
    same = await begin(store, job(), [instance("one", source="another kind of rows")])
    assert names(same) == ["one/0", "one/1"]


@pytest.mark.threat(point=20)
async def test_workers_cover_a_grown_job_whatever_order_their_rows_come_in(store: Store) -> None:
    tasks = [instance(f"t{n}") for n in range(7)]
    await begin(store, job(), tasks[3:5])
    shuffled = [tasks, tasks[::-1], tasks[3:] + tasks[:3]]

    shares = [
        await begin(store, job(), rows, Shard(index, 3)) for index, rows in enumerate(shuffled)
    ]

    played = [name for share in shares for name in names(share)]
    assert sorted(played) == sorted({f"t{n}/{s}" for n in range(7) for s in range(2)})


@pytest.mark.threat(point=27)
async def test_a_worker_of_another_namespace_does_not_begin(store: Store) -> None:
    await begin(store, job(), [instance("one")], owner=Owner("a", "0123"))
    with pytest.raises(UsageError, match="belongs to a job of namespace a of cluster 0123"):
        await begin(store, job(), [instance("one")], owner=Owner("b", "0123"))


@dataclass
class Named:
    """The part of a context that says who samples."""

    model: str
    fingerprint: str

    @property
    def agent(self) -> Named:
        return self

    @property
    def renderer(self) -> Named:
        return self

    @property
    def path(self) -> TokenPath:
        return TokenPath("chatml", "hermes", self.fingerprint)

    def policy(self, episode: EpisodeId) -> str:
        return f"sglang:{self.model}/{episode.sample}"


@pytest.mark.threat(point=20)
def test_a_model_or_tokenizer_behind_another_address_is_refused_by_name() -> None:
    record = replace(
        trajectory("one", 3),
        policy="sglang:qwen/3",
        token_path=TokenPath("chatml", "hermes", "f00"),
    )
    sampler = Sampler.of(record)
    sampler.require_same(cast("JobContext", Named("qwen", "f00")))
    Sampler.of(replace(record, token_path=None)).require_same(
        cast("JobContext", Named("qwen", "other"))
    )
    with pytest.raises(UsageError, match="sampled by another policy") as caught:
        sampler.require_same(cast("JobContext", Named("llama", "bad")))
    assert "sglang:llama/3 now, it was sglang:qwen/3" in caught.value.why
    assert "tokenizer or chat template" in caught.value.why
