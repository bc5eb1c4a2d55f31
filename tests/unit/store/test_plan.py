"""What a job in a store may change, and what it may not."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from swe_rollout.errors import StoreError, UsageError
from swe_rollout.spec.job import RolloutJob
from swe_rollout.store.plan import Plan
from swe_rollout.store.store import Store
from swe_rollout.store.summary import summarise
from swe_rollout.types.episode import EpisodeId
from unit.store.records import job, tasks, trajectory

SGLANG = {"url": "http://one:30000", "retries": 1}


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def planned(plan: Plan) -> dict[str, int]:
    return {instance.id: instance.samples for instance in plan.instances}


@pytest.mark.threat(point=20)
async def test_a_job_grows_by_samples_and_by_tasks(store: Store) -> None:
    await store.begin(job(samples=2), tasks("one", "two"))
    more = await store.begin(job(samples=4), tasks("one", "two"))
    other = await store.begin(job(samples=1), tasks("three", "one"))

    assert planned(more.plan) == {"one": 4, "two": 4}
    assert more.notes == (f"{store.uri}/demo grows from 4 to 8 episodes",)
    assert planned(other.plan) == {"one": 4, "two": 4, "three": 1}
    assert await store.plan("demo") == other.plan
    assert (await summarise(store, "demo")).episodes == 9


@pytest.mark.threat(point=20)
async def test_a_smaller_run_leaves_the_plan_as_it_is(store: Store, tmp_path: Path) -> None:
    begun = await store.begin(job(samples=4), tasks("one", "two"))
    smaller = await store.begin(job(samples=2), tasks("two"))

    assert (smaller.plan, smaller.notes) == (begun.plan, ())
    assert not (tmp_path / "runs/demo/plans").exists()


@pytest.mark.threat(point=20)
@pytest.mark.parametrize(
    "change",
    [
        {"parallelism": 32},
        {"sandbox": {"pod": {"resources": {"memory": "8Gi"}}}},
        {"retry": {"attempts": 9}},
        {"failureBudget": {"maxMaskedFraction": 0.5}},
        {"workers": {"count": 3}},
        {"activeDeadlineSeconds": 60},
        {"policy": {"sglang": {"url": "http://two:30000", "concurrency": 4, "apiKeyEnv": "KEY"}}},
        {"policy": {"sglang": {"workers": ["http://a", "http://b"]}}},
        {"dataset": {"swebench": {"uri": "rows.jsonl"}, "slice": "0:9"}},
    ],
    ids=",".join,
)
async def test_what_trajectories_do_not_depend_on_may_change(
    store: Store, change: dict[str, object]
) -> None:
    begun = await store.begin(job(policy={"sglang": SGLANG}), tasks("one"))
    again = await store.begin(job(**{"policy": {"sglang": SGLANG}, **change}), tasks("one"))
    assert again.plan == begun.plan


@pytest.mark.threat(point=20)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"limits": {"turns": 9}}, "spec.limits.turns: 50 there, 9 now"),
        ({"sampling": {"temperature": 0.5}}, "spec.sampling.temperature: 1.0 there, 0.5 now"),
        ({"sampling": {"seed": 7}}, "spec.sampling.seed: unset there, 7 now"),
        ({"agent": {"tools": ["bash"]}}, "spec.agent.tools"),
        ({"agent": {"systemPrompt": "hi"}}, "spec.agent.systemPrompt: unset there, hi now"),
        ({"grading": {"enabled": False}}, "spec.grading.enabled: true there, false now"),
        ({"grading": {"reward": [{"use": "a:b"}]}}, "spec.grading.reward: unset there"),
        ({"policy": {"scripted": {}}}, "spec.policy.scripted: unset there, {scenarios: [gold"),
        ({"policy": {"sglang": SGLANG, "tokenizer": "x/y"}}, "spec.policy.tokenizer: unset there"),
        (
            {"policy": {"sglang": {**SGLANG, "record": {"promptLogprobs": True}}}},
            "spec.policy.sglang.record.promptLogprobs: false there, true now",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_trajectories_depend_on_is_refused_with_the_field(
    store: Store, change: dict[str, object], why: str, tmp_path: Path
) -> None:
    await store.begin(job(policy={"sglang": SGLANG}), tasks("one"))
    before = _files(tmp_path)

    with pytest.raises(UsageError, match="another spec") as caught:
        await store.begin(job(**{"policy": {"sglang": SGLANG}, **change}), tasks("one", "two"))

    assert why in caught.value.why
    assert "metadata.name" in caught.value.fix
    assert "store.uri" in caught.value.fix
    assert before == _files(tmp_path)


OLD = [{"name": name, "sha256": "0" * 64} for name in ("a.py", "b.py")]
NEW = [{"name": name, "sha256": "1" * 64} for name in ("b.py", "c.py")]


@pytest.mark.threat(point=20)
async def test_changed_files_are_named_and_taken_only_if_asked(store: Store) -> None:
    before = await store.begin(job(extensions=OLD[1:]), tasks("one"))

    with pytest.raises(UsageError, match="was begun with other code") as caught:
        await store.begin(job(extensions=NEW), tasks("one"))
    assert caught.value.why == (
        "b.py changed since this job began; c.py was added since this job began"
    )
    assert "--rerun-masked" in caught.value.fix
    begun = await store.begin(job(extensions=NEW), tasks("one"), takes_code=True)
    assert begun.plan.spec_digest != before.plan.spec_digest
    assert (await store.begin(job(extensions=NEW), tasks("one"))).plan == begun.plan
    for other in (job(extensions=OLD[:1]), job(extensions=NEW, limits={"turns": 3})):
        with pytest.raises(UsageError, match="another spec"):
            await store.begin(other, tasks("one"), takes_code=True)


async def test_a_changed_bundle_is_named_once(store: Store) -> None:
    def bundled(digit: str) -> RolloutJob:
        tool = {"use": "bundle", "with": {"path": "tools", "sha256": digit * 64}}
        file = {"name": "tools.bundle", "sha256": digit * 64}
        return job(agent={"tools": ["bash", tool]}, extensions=[file])

    await store.begin(bundled("0"), tasks("one"))
    with pytest.raises(UsageError, match="other code") as caught:
        await store.begin(bundled("1"), tasks("one"))
    assert caught.value.why == "tools.bundle changed since this job began"


async def test_long_values_are_shown_where_they_differ(store: Store) -> None:
    same = "never mind " * 200
    await store.begin(job(agent={"systemPrompt": f"{same}A{same}"}), tasks("one"))
    with pytest.raises(UsageError) as caught:
        await store.begin(job(agent={"systemPrompt": f"{same}B{same}"}), tasks("one"))
    old, new = caught.value.why.split(" there, ")
    assert "A" in old.split("…")[1]
    assert "B" in new.split("…")[1]
    assert len(caught.value.why) < 250


@pytest.mark.threat(point=20)
async def test_a_task_with_another_content_is_refused_by_name(store: Store) -> None:
    await store.begin(job(), tasks("one", "two"))
    with pytest.raises(UsageError, match="other tasks of the same names") as caught:
        await store.begin(job(samples=8), {**tasks("one", "three"), "two": "changed"})
    assert "such as two" in caught.value.why
    assert planned(await store.plan("demo")) == {"one": 2, "two": 2}


@pytest.mark.threat(point=20)
async def test_runs_that_grow_a_job_at_once_lose_nothing(store: Store) -> None:
    await store.begin(job(samples=1), tasks("one"))
    growing = [store.begin(job(samples=2 + n % 3), tasks("one", f"new-{n}")) for n in range(12)]
    await asyncio.gather(*growing)

    plan = await store.plan("demo")
    assert planned(plan) == {"one": 4, **{f"new-{n}": 2 + n % 3 for n in range(12)}}
    assert plan.order()["one"] == 0


@pytest.mark.threat(point=20)
async def test_tasks_keep_their_place_when_a_job_grows(store: Store) -> None:
    """Workers divide them by it, also those that began before the job grew."""
    first = await store.begin(job(), tasks("m", "b"))
    grown = await store.begin(job(), tasks("a", "b", "z", "m"))
    assert list(first.plan.order()) == ["m", "b"]
    assert list(grown.plan.order()) == ["m", "b", "a", "z"]


@pytest.mark.threat(point=20)
@pytest.mark.parametrize("lost", [["plan.json"], ["plan.json", "job.yaml"], ["job.yaml"]])
async def test_no_other_spec_comes_in_where_files_were_deleted(
    store: Store, tmp_path: Path, lost: list[str]
) -> None:
    await store.begin(job(), tasks("one"))
    await store.commit(trajectory("one"))
    for name in lost:
        (tmp_path / "runs/demo" / name).unlink()

    with pytest.raises(UsageError, match="another spec"):
        await store.begin(job(limits={"turns": 3}), tasks("one"))
    if "plan.json" in lost:
        with pytest.raises(UsageError, match="other tasks"):
            await store.begin(job(), {"one": "changed"})
        with pytest.raises(UsageError, match="the plan of demo is missing") as caught:
            await store.plan("demo")
        assert "run the job again" in caught.value.fix
    grown = await store.begin(job(), tasks("one"))
    assert planned(grown.plan) == {"one": 2}
    assert (await summarise(store, "demo")).episodes == 2
    assert (tmp_path / "runs/demo/job.yaml").exists()


@pytest.mark.threat(point=20)
async def test_trajectories_without_a_plan_are_planned_again(store: Store, tmp_path: Path) -> None:
    await store.begin(job(samples=3), tasks("one", "two"))
    await store.commit(trajectory("two", 2))
    (tmp_path / "runs/demo/plan.json").unlink()

    begun = await store.begin(job(samples=1), tasks("one"))

    assert planned(begun.plan) == {"two": 3, "one": 1}


@pytest.mark.threat(point=20)
async def test_records_of_several_specs_are_never_taken_for_one_job(
    store: Store, tmp_path: Path
) -> None:
    await store.begin(job(), tasks("one"))
    await store.commit(trajectory("one", 0))
    await store.commit(replace(trajectory("one", 1), spec_digest="ffffffffffff"))
    for name in ("plan.json", "job.yaml"):
        (tmp_path / "runs/demo" / name).unlink()
    with pytest.raises(UsageError, match="another spec") as caught:
        await store.begin(job(), tasks("one"))
    assert f"{job().digest} and ffffffffffff" in caught.value.why


@pytest.mark.parametrize("name", ["plan.json", "plans/2.json"])
async def test_a_plan_that_cant_be_read_is_named_with_a_way_on(
    store: Store, tmp_path: Path, name: str
) -> None:
    await store.begin(job(samples=1), tasks("one"))
    await store.begin(job(samples=2), tasks("one"))
    path = tmp_path / "runs/demo" / name
    path.write_bytes(path.read_bytes()[:-9])
    if name == "plan.json":
        (tmp_path / "runs/demo/plans/2.json").unlink()

    with pytest.raises(StoreError, match="can't be read") as caught:
        await store.plan("demo")
    assert "move it away and run the job again" in caught.value.fix
    path.rename(tmp_path / "aside")
    assert planned((await store.begin(job(samples=2), tasks("one"))).plan) == {"one": 2}


async def test_a_spec_that_another_version_hashed_otherwise_is_still_the_same(
    store: Store, tmp_path: Path
) -> None:
    await store.begin(job(), tasks("one"))
    path = tmp_path / "runs/demo/plan.json"
    record = json.loads(path.read_bytes()) | {"spec_digest": "an-older-one"}
    path.write_bytes(json.dumps(record).encode())
    assert (await store.begin(job(), tasks("one"))).plan.spec_digest == "an-older-one"


async def test_what_is_in_quarantine_is_in_the_plan_and_in_the_summary(store: Store) -> None:
    quarantined = {"three": "gold", "four": "base", "five": "gold"}
    begun = await store.begin(job(), tasks("one", "two"), quarantined=quarantined)

    assert (begun.plan.quarantined, begun.notes) == (quarantined, ())
    assert (await summarise(store, "demo")).quarantined == {"base": 1, "gold": 2}


async def test_a_planned_task_that_comes_into_quarantine_stays_planned_and_is_named(
    store: Store,
) -> None:
    await store.begin(job(samples=2), tasks("one", "two"))
    begun = await store.begin(job(samples=2), tasks("two"), quarantined={"one": "gold"})

    assert planned(begun.plan) == {"one": 2, "two": 2}
    (note,) = begun.notes
    assert "1 tasks that" in note
    assert "such as one, are in quarantine: their episodes stay planned, none is run" in note
    assert (await store.plan("demo")).quarantined == {"one": "gold"}


async def test_a_plan_from_before_there_was_a_quarantine_is_read(store: Store) -> None:
    begun = await store.begin(job(), tasks("one"))
    older = json.loads(msgspec.json.encode(begun.plan))
    del older["quarantined"]
    assert msgspec.json.decode(json.dumps(older), type=Plan) == begun.plan


async def test_missing_are_planned_episodes_that_may_still_be_run(store: Store) -> None:
    quarantined = {"three": "gold_fails"}
    names = tasks("one", "two")
    await store.begin(job(samples=2), names | tasks("three"))
    plan = (await store.begin(job(samples=2), names, quarantined=quarantined)).plan

    def episodes(*samples: tuple[str, int]) -> frozenset[EpisodeId]:
        return frozenset(EpisodeId("job", *each) for each in samples)

    assert plan.missing(episodes()) == 4
    assert plan.missing(episodes(("one", 0), ("one", 7), ("three", 0), ("other", 0))) == 3


def test_a_plan_says_where_its_episodes_begin() -> None:
    fork = {"uri": "s3://rollouts/other", "instance": "a", "sample": 2, "turn": 3}
    assert Plan.of(job(fork=fork), tasks("a")).forked_from == "other/a/2, turn 3"
    assert Plan.of(job(), tasks("a")).forked_from == ""
    hostile: tuple[dict[str, object], ...] = ({}, {"spec": 3}, {"spec": {"fork": [1]}})
    assert all(not Plan((), "", each).forked_from for each in hostile)
