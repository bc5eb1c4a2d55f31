"""The store on a folder: commit once, resume, refuse another job, survive what a crash leaves."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
import zstandard

from swe_rollout.errors import StoreError, UnreachableError, UsageError
from swe_rollout.store.damage import DamagedRecord
from swe_rollout.store.layout import trajectory_key
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory_json import to_json
from unit.store.records import job, tasks, trajectory


def refuse(record: DamagedRecord) -> None:
    """No record is damaged here."""
    raise AssertionError(record)


async def test_a_trajectory_is_committed_once_and_the_first_one_stays(store: Store) -> None:
    first, second = trajectory(), replace(trajectory(), seed=8)
    assert await store.commit(first)
    assert not await store.commit(second)
    assert await store.read(first.episode) == first


async def test_of_many_commits_at_the_same_time_one_wins(store: Store) -> None:
    rivals = [replace(trajectory(), seed=seed) for seed in range(16)]
    won = await asyncio.gather(*map(store.commit, rivals))
    assert won.count(True) == 1
    assert await store.read(rivals[0].episode) == rivals[won.index(True)]


async def test_committed_names_the_episodes_of_one_job_only(store: Store) -> None:
    other = replace(trajectory(), episode=EpisodeId("demo-2", "demo__one-1", 0))
    for committed in (trajectory(), trajectory(sample=11), trajectory("a.b+c_d-1"), other):
        await store.commit(committed)
    assert await store.committed("demo") == {
        EpisodeId("demo", "demo__one-1", 0),
        EpisodeId("demo", "demo__one-1", 11),
        EpisodeId("demo", "a.b+c_d-1", 0),
    }


async def test_an_empty_store_has_no_episodes_and_reading_creates_nothing(
    store: Store, tmp_path: Path
) -> None:
    assert await store.committed("demo") == frozenset()
    with pytest.raises(UsageError, match="has no job demo"):
        await store.plan("demo")
    assert not (tmp_path / "runs").exists()


async def test_what_a_killed_commit_leaves_behind_is_no_episode_and_blocks_none(
    store: Store, tmp_path: Path
) -> None:
    key = tmp_path / "runs" / trajectory_key(trajectory().episode)
    key.parent.mkdir(parents=True)
    (key.parent / f"{key.name}#1").write_bytes(b"half of a traj")
    assert await store.committed("demo") == frozenset()
    assert await store.commit(trajectory())
    assert await store.read(trajectory().episode) == trajectory()


WRITER = """
import asyncio, sys
from dataclasses import replace
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory_json import from_json

async def main():
    one = from_json(sys.stdin.buffer.read())
    store = Store.open(sys.argv[1])
    for sample in range(10**6):
        await store.commit(replace(one, episode=EpisodeId("demo", "a", sample)))
        print(sample, flush=True)

asyncio.run(main())
"""


async def test_a_writer_killed_at_any_time_leaves_whole_trajectories_only(store: Store) -> None:
    big = replace(trajectory(), token_ids=tuple(range(200_000)))
    writer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WRITER, store.uri), stdin=PIPE, stdout=PIPE
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write(to_json(big))
    writer.stdin.close()
    reported = [int(await writer.stdout.readline()) for _ in range(3)]
    await asyncio.sleep(0.01)
    writer.kill()
    await writer.wait()
    found = [t async for t in store.trajectories("demo", on_damage=refuse)]
    assert {t.episode.sample for t in found} >= set(reported)
    assert all(t.token_ids == big.token_ids for t in found)
    following = EpisodeId("demo", "a", len(found))
    assert await store.commit(replace(big, episode=following))


async def test_the_stored_object_is_plain_zstd_json(store: Store, tmp_path: Path) -> None:
    await store.commit(trajectory())
    data = (tmp_path / "runs" / trajectory_key(trajectory().episode)).read_bytes()
    record = json.loads(zstandard.ZstdDecompressor().decompress(data))
    assert record["episode"] == "demo/demo__one-1/0"
    assert record["reward"] == 1.0


async def test_an_episode_that_is_not_there_is_a_usage_error(store: Store) -> None:
    with pytest.raises(UsageError, match="demo/demo__one-1/0 is not in the store"):
        await store.read(trajectory().episode)


async def test_trajectories_come_by_instance_then_sample_number(store: Store) -> None:
    for instance, sample in [("b", 0), ("a", 10), ("a", 2), ("a", 0)]:
        await store.commit(trajectory(instance, sample))
    found = store.trajectories("demo", on_damage=refuse)
    order = [(t.episode.instance, t.episode.sample) async for t in found]
    assert order == [("a", 0), ("a", 2), ("a", 10), ("b", 0)]


@pytest.mark.parametrize("instance", ["../escape", "a/b", "", ".", "..", "a b", "ü", "x\n"])
async def test_unsafe_instance_ids_never_become_folders(store: Store, instance: str) -> None:
    with pytest.raises(UsageError, match="can't be the name of a folder"):
        await store.begin(job(), {instance: ""})


async def test_a_job_begins_with_its_spec_and_its_plan(store: Store, tmp_path: Path) -> None:
    begun = await store.begin(job(), tasks("one", "two"))
    assert begun.plan.episodes == 4
    assert begun.notes == ()
    assert await store.plan("demo") == begun.plan
    assert yaml.safe_load((tmp_path / "runs/demo/job.yaml").read_bytes()) == job().to_yaml_dict()
    assert json.loads((tmp_path / "runs/demo/plan.json").read_bytes()) == {
        "schema": 2,
        "instances": [
            {"id": "one", "samples": 2, "digest": "digest-one"},
            {"id": "two", "samples": 2, "digest": "digest-two"},
        ],
        "spec_digest": job().digest,
        "job": job().to_yaml_dict(),
        "quarantined": {},
    }


async def test_relative_stores_start_at_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await Store.open("file://some/runs").commit(trajectory())
    assert (tmp_path / "some/runs/demo/episodes").is_dir()


async def test_a_store_path_under_a_file_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="can't write"):
        await Store.open(f"file://{tmp_path}/file/runs").commit(trajectory())
    with pytest.raises(UnreachableError):
        await Store.open(f"file://{tmp_path}/file/runs").begin(job(), tasks("one"))


async def test_a_reader_that_stops_early_leaves_nothing_running(store: Store) -> None:
    for sample in range(20):
        await store.commit(trajectory(sample=sample))
    async with aclosing(store.records(await store.committed("demo"))) as records:
        assert await anext(records) == trajectory(sample=0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
