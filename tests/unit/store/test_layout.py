"""Keys of a store, both ways."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.errors import UsageError
from swe_rollout.store import layout
from swe_rollout.store.layout import JobRef
from swe_rollout.types.episode import EpisodeId

names = st.from_regex(r"[A-Za-z0-9._+-]{1,40}", fullmatch=True).filter(
    lambda name: name not in (".", "..")
)


@settings(deadline=None)
@given(names, names, st.integers(min_value=0, max_value=10**6))
def test_a_trajectory_key_parses_back_to_its_episode(job: str, instance: str, sample: int) -> None:
    episode = EpisodeId(job, instance, sample)
    assert layout.parse_trajectory_key(layout.trajectory_key(episode)) == episode


@pytest.mark.parametrize(
    "key",
    [
        "demo/plan.json",
        "demo/episodes/a/0/trajectory.json.zst#1",
        "demo/episodes/a/00/trajectory.json.zst",
        "demo/episodes/a/-1/trajectory.json.zst",
        "demo/episodes/a/b/0/trajectory.json.zst",
        "demo/episodes/a/0/trajectory.json.zst\n",
        "x/demo/episodes/a/0/trajectory.json.zst",
    ],
)
def test_other_keys_are_no_episodes(key: str) -> None:
    assert layout.parse_trajectory_key(key) is None


@settings(deadline=None)
@given(st.text(max_size=6))
def test_a_segment_is_safe_or_refused(name: str) -> None:
    try:
        checked = layout.segment(name)
    except UsageError:
        return
    assert checked == name
    assert Path(f"/root/{name}").parts == ("/", "root", name)
    assert name not in {".", ".."}


@pytest.mark.parametrize(
    ("address", "store", "job"),
    [
        ("file:///data/runs/demo", "file:///data/runs", "demo"),
        ("file:///data/runs/demo/", "file:///data/runs", "demo"),
        ("file://runs/demo", "file://runs", "demo"),
        ("s3://bucket/demo", "s3://bucket", "demo"),
        ("s3://bucket/some/prefix/demo", "s3://bucket/some/prefix", "demo"),
        ("/data/runs/demo", "file:///data/runs", "demo"),
        ("/demo", "file:///", "demo"),
        ("runs/demo", f"file://{Path.cwd()}/runs", "demo"),
        ("demo", f"file://{Path.cwd()}", "demo"),
    ],
)
def test_a_job_address_is_store_and_job(address: str, store: str, job: str) -> None:
    assert JobRef.parse(address) == JobRef(store, job)
    assert str(JobRef(store, job)) == f"{store}/{job}"


@pytest.mark.parametrize("address", ["", "s3://bucket", "file:///runs/Not_A_Job", "/", "a b", ".."])
def test_what_names_no_job_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(UsageError, match="does not name a job") as caught:
        JobRef.parse(address)
    assert "s3://bucket/runs/my-job" in caught.value.fix


@settings(deadline=None)
@given(names, names, st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, 10**6))
def test_a_chunk_key_parses_back_and_is_no_episode(
    job: str, instance: str, sample: int, journal: int, chunk: int
) -> None:
    key = layout.chunk_key(EpisodeId(job, instance, sample), journal, chunk)
    assert layout.parse_chunk_key(key) == (instance, sample, journal, chunk)
    assert layout.parse_trajectory_key(key) is None
    assert key.startswith(f"{layout.journals_prefix(job)}/")


@pytest.mark.parametrize(
    "key",
    [
        "demo/journals/a/0/1/0.msgpack",
        "demo/journals/a/0/0/0.msgpack.zst",
        "demo/journals/a/0/1/00.msgpack.zst",
        "demo/journals/../0/1/0.msgpack.zst",
        "demo/episodes/a/0/1/0.msgpack.zst",
        "demo/journals/a/0/1/0.msgpack.zst#2",
    ],
)
def test_other_keys_are_no_chunks(key: str) -> None:
    assert layout.parse_chunk_key(key) is None
