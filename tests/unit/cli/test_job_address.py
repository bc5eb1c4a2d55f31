"""Addresses of jobs, in a store and on the cluster; more wrong ones in tests/e2e/wrong_uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.cli.job_address import ClusterJobName, JobLocation, find_either, parse_job_name
from swe_rollout.cli.wrong_address import job_named_wrongly, local_job
from swe_rollout.errors import UsageError


@pytest.mark.parametrize(
    ("address", "namespace", "expected"),
    [
        ("demo", None, ClusterJobName("demo", None)),
        ("demo", "ns", ClusterJobName("demo", "ns")),
        ("ns/demo", None, ClusterJobName("demo", "ns")),
        ("ns/demo", "ns", ClusterJobName("demo", "ns")),
    ],
)
def test_a_job_on_the_cluster_is_a_name_with_or_without_its_namespace(
    address: str, namespace: str | None, expected: ClusterJobName
) -> None:
    assert parse_job_name(address, JobLocation(namespace)) == expected


@pytest.mark.parametrize(
    ("address", "namespace"),
    [("ns/demo", "other"), ("s3://b/demo", None), ("a/b/c", None), ("Demo", None), ("", None)],
)
def test_anything_else_is_not_the_name_of_a_job(address: str, namespace: str | None) -> None:
    with pytest.raises(UsageError, match="does not name a job"):
        parse_job_name(address, JobLocation(namespace))


async def test_without_a_cluster_it_is_the_store_that_lacks_the_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError, match="has no job demo") as caught:
        await find_either("demo", JobLocation())

    assert "on the cluster" in caught.value.why
    with pytest.raises(UsageError) as stored:
        await find_either(f"file://{tmp_path}/demo", JobLocation())
    assert "cluster" not in stored.value.why


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("wrong", ["s3://bucket/demo", "nothing/demo", "nothing", "runs/other"])
def test_nothing_is_said_of_an_address_that_may_be_right(wrong: str) -> None:
    assert job_named_wrongly(wrong) is None


@pytest.mark.usefixtures("address")
def test_a_job_in_a_folder_is_told_from_one_on_the_cluster() -> None:
    assert local_job("runs/demo") == Path("runs/demo")
    assert local_job("demo") is None
    assert local_job("team/demo") is None
