"""RolloutJobs over HTTP: what is sent, how a watch recovers, how refusals read."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from swe_rollout.cluster import jobs as jobs_module
from swe_rollout.cluster.jobs import Jobs
from swe_rollout.errors import (
    ClusterError,
    PrerequisiteError,
    SweRolloutError,
    UnreachableError,
    UsageError,
)
from swe_rollout.spec.load import parse_job
from swe_rollout.spec.template import template
from unit.cluster.job_server import JobServer, absent, changed, decoded, job, open_jobs
from unit.conftest import Connect


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "_PAUSE_S", 0.01)


async def test_an_apply_is_server_side_strict_and_says_what_the_file_says(
    connect: Connect,
) -> None:
    seen: list[tuple[web.Request, dict[str, Any]]] = []

    async def respond(request: web.Request) -> web.Response:
        seen.append((request, await request.json()))
        return web.json_response(job())

    jobs = await open_jobs(connect, respond)
    parsed = parse_job(template(), source="")

    await jobs.apply("ns", parsed)
    await jobs.apply("ns", parsed, dry_run=True)

    (request, body), (dry, _) = seen
    assert request.method == "PATCH"
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert request.query["fieldValidation"] == "Strict"
    assert "dryRun" not in request.query
    assert dry.query["dryRun"] == "All"
    assert body["apiVersion"] == "swe-rollout.dev/v1alpha1"
    assert body["metadata"] == {"name": parsed.metadata.name, "namespace": "ns"}
    assert "retry" not in body["spec"]


async def test_a_watch_resumes_after_every_kind_of_end(connect: Connect) -> None:
    server = JobServer(
        gets=[job("1"), job("4"), job("5"), job("7"), job("9")],
        watches=[
            [changed("MODIFIED", job("2"))],
            [b"<html>502 Bad Gateway</html>"],
            410,
            [changed("ERROR", {"code": 410, "reason": "Expired"})],
            [changed("BOOKMARK", job("10")), changed("DELETED", job("11"))],
        ],
    )
    jobs = await open_jobs(connect, server.respond)

    versions = [state.metadata.resource_version async for state in jobs.follow("ns", "demo")]

    assert versions == ["1", "2", "4", "5", "7", "9"]
    assert [each for each in server.requests if each.startswith("watch")] == [
        "watch from 1",
        "watch from 4",
        "watch from 5",
        "watch from 7",
        "watch from 9",
    ]


@pytest.mark.parametrize(
    ("response", "error", "fix"),
    [
        (absent(), UsageError, "kubectl get rolloutjobs"),
        (web.Response(status=404, text="404 page not found\n"), PrerequisiteError, "install"),
        (absent("other"), UsageError, "create namespace ns"),
        (
            web.json_response({"reason": "Forbidden", "message": "no"}, status=403),
            PrerequisiteError,
            "Role",
        ),
        (
            web.json_response({"reason": "Invalid", "message": "spec.x: why"}, status=422),
            UsageError,
            "fix the job",
        ),
        (web.json_response({"reason": "Oops"}, status=500), UnreachableError, ""),
    ],
)
async def test_refusals_become_errors_with_a_fix(
    response: web.Response, error: type[SweRolloutError], fix: str, connect: Connect
) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(
            status=response.status, body=response.body, content_type=response.content_type
        )

    jobs = Jobs(await connect(handler, retry_timeout_s=0.0))

    with pytest.raises(error) as caught:
        await jobs.get("ns", "demo")

    assert fix in caught.value.fix


async def test_fields_of_a_newer_operator_are_skipped_and_invalid_ones_are_reported(
    connect: Connect,
) -> None:
    del connect
    newer = decoded(job(state="Running", episodes={"total": 3, "napping": 1}, mood="good"))

    assert newer.status.episodes.total == 3
    with pytest.raises(ClusterError, match="can't be read"):
        decoded(job(episodes={"total": "many"}))
