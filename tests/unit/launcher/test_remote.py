"""Jobs on a cluster: what is sent, waiting for the end, cancelling; the API server is scripted."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from swe_rollout import RolloutJob
from swe_rollout.cluster import jobs as jobs_module
from swe_rollout.cluster.job_objects import JobObject
from swe_rollout.cluster.jobs import Jobs
from swe_rollout.errors import SweRolloutError, UsageError
from swe_rollout.launcher import remote
from swe_rollout.launcher.job_result import JobFailedError, JobRefusedError, JobTimeoutError
from swe_rollout.launcher.remote import cancel, wait_until_complete
from swe_rollout.launcher.uploads import LocalRows
from swe_rollout.spec.load import parse_job
from swe_rollout.spec.template import template
from swe_rollout.types.bad_rows import BadRow
from unit.cluster.job_server import JobServer, changed, condition, decoded, job, open_jobs
from unit.conftest import Connect


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "_PAUSE_S", 0.01)


async def test_an_api_server_that_is_down_is_waited_for_once_the_job_was_seen(
    connect: Connect,
) -> None:
    responses = deque([job("1"), None, None, job("3", conditions=[condition("Complete")])])

    async def respond(request: web.Request) -> web.StreamResponse:
        found = None if "watch" in request.query else responses.popleft()
        if found is None:
            return web.json_response({"code": 503}, status=503)
        return web.json_response(found)

    jobs = Jobs(await connect(respond, retry_timeout_s=0.0))

    seen: list[JobObject] = []
    done = await wait_until_complete(jobs, decoded(job()), timeout_s=20, on_state=seen.append)

    assert done.metadata.resource_version == "3"
    assert [each.metadata.resource_version for each in seen] == ["1", "3"]
    assert not responses


STALE = [condition("Accepted", "False", observedGeneration=1)]
FAILED_ROUND = [
    condition("Accepted", "False", reason="RoundFailed", observedGeneration=2, message="503")
]
COMPLETE = changed("MODIFIED", job("2", conditions=[condition("Complete")]))


@pytest.mark.parametrize(
    ("end", "error", "words"),
    [
        ([condition("Failed", message="the budget is spent")], JobFailedError, "budget is spent"),
        (
            [condition("Accepted", "False", message="no such tokenizer", observedGeneration=2)],
            JobRefusedError,
            "no such tokenizer",
        ),
    ],
)
async def test_waiting_ends_with_what_the_operator_says(
    end: list[dict[str, Any]], error: type[SweRolloutError], words: str, connect: Connect
) -> None:
    server = JobServer(gets=[job()], watches=[[changed("MODIFIED", job("2", conditions=end))]])

    with pytest.raises(error, match=words):
        await wait_until_complete(
            await open_jobs(connect, server.respond), decoded(job()), timeout_s=20
        )


@pytest.mark.parametrize("conditions", [STALE, FAILED_ROUND])
async def test_a_refusal_of_an_older_spec_and_a_failed_round_are_waited_out(
    conditions: list[dict[str, Any]], connect: Connect
) -> None:
    server = JobServer(gets=[job("1", conditions=conditions)], watches=[[COMPLETE]])
    jobs = await open_jobs(connect, server.respond)

    done = await wait_until_complete(jobs, decoded(job()), timeout_s=20)

    assert done.metadata.resource_version == "2"


@pytest.mark.parametrize("next_job", [None, job("9", uid="another")])
async def test_waiting_for_a_deleted_job_fails_also_when_its_name_is_reused(
    next_job: dict[str, Any] | None, connect: Connect
) -> None:
    server = JobServer(gets=[job(), next_job], watches=[[], []])
    jobs = await open_jobs(connect, server.respond)

    with pytest.raises(JobFailedError, match="deleted"):
        await wait_until_complete(jobs, decoded(job()), timeout_s=20)


async def test_a_timeout_ends_the_wait_and_the_job_continues(connect: Connect) -> None:
    jobs = await open_jobs(connect, JobServer(gets=[job()]).respond)

    with pytest.raises(JobTimeoutError, match=r"waited for 0\.05 s") as caught:
        await wait_until_complete(jobs, decoded(job()), timeout_s=0.05)

    assert isinstance(caught.value, TimeoutError)


async def test_cancel_waits_until_the_job_is_gone_and_reports_when_it_stays(
    connect: Connect,
) -> None:
    going = JobServer(gets=[job(), None])
    staying = JobServer(gets=[job()])

    await cancel(await open_jobs(connect, going.respond), decoded(job()), timeout_s=20)
    with pytest.raises(JobTimeoutError, match="still exists"):
        await cancel(await open_jobs(connect, staying.respond), decoded(job()), timeout_s=0.05)

    assert going.requests == ["DELETE", "GET", "GET"]


def test_on_a_cluster_sandboxes_are_pods_and_the_store_is_not_a_folder(job_file: Path) -> None:
    notes: list[str] = []
    here = RolloutJob.from_yaml(job_file)
    there = RolloutJob.from_yaml(job_file, overrides=["spec.store.uri=s3://b/p"])

    sent = remote.for_cluster(there, on_note=notes.append)

    assert sent.spec.sandbox.pod is not None
    assert sent.spec.sandbox.local is None
    assert sent.digest == there.digest
    with pytest.raises(UsageError, match="file://"):
        remote.for_cluster(here, on_note=notes.append)


async def test_a_local_quarantine_file_is_written_to_the_store_and_named_in_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[LocalRows] = []
    applied: list[RolloutJob] = []

    async def put(rows: LocalRows) -> None:
        written.append(rows)

    class Cluster:
        namespace = "rollouts"

        async def apply(self, _: str, job: RolloutJob, *, dry_run: bool) -> None:
            del dry_run
            applied.append(job)

    monkeypatch.setattr(LocalRows, "put", put)
    (tmp_path / "quarantine.jsonl").write_bytes(BadRow("one", "0" * 12, ()).to_line())
    overrides = ("spec.store.uri=s3://bucket/runs", "spec.dataset.quarantine=quarantine.jsonl")
    found = parse_job(template(), source="job.yaml", overrides=overrides)
    for dry_run in (True, False):
        await remote.submit(
            cast("Jobs", Cluster()),
            found,
            namespace=None,
            base_dir=tmp_path,
            on_note=lambda _: None,
            dry_run=dry_run,
        )
    (file,) = written
    assert [job.spec.dataset.quarantine for job in applied] == [file.uri] * 2
    assert file.uri.startswith("s3://bucket/runs/")
