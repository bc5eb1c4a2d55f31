"""API-server writes per episode of a RolloutJob, counted from the dev cluster's audit log.

It runs one job of release pairs in its own namespace, with the installed operator, and counts what
the operator and the workers create, change and delete there: sandbox and grading pods, progress
annotations, status, events, and the job's own objects. The platform's writes in response (kubelet,
scheduler, garbage collector) have their own row. Opening an exec stream stores nothing and is not
counted.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rollout_dev.dev_cluster.api import Json, inner, text
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import PREREQUISITE, ScriptError
from rollout_dev.report import Report, Row, parser


@dataclass(frozen=True, slots=True)
class ApiWrite:
    """A request that creates, changes or deletes something."""

    verb: str
    resource: str
    """The resource with its subresource, such as `pods/status`."""
    namespace: str
    user: str

    @classmethod
    def of(cls, entry: Json) -> ApiWrite:
        """Parse an entry of the log."""
        target = inner(entry, "objectRef")
        parts = (text(inner(target, "resource")), text(inner(target, "subresource")))
        return cls(
            text(inner(entry, "verb")),
            "/".join(filter(None, parts)),
            text(inner(target, "namespace")),
            text(inner(entry, "user", "username")),
        )


def writes(log: Path, *, since: int) -> Iterator[ApiWrite]:
    """Yield the writes that were logged after the first `since` bytes."""
    with log.open("rb") as file:
        file.seek(since)
        for line in file:
            entry: Json = json.loads(line)
            if inner(entry, "stage") == "ResponseComplete":
                yield ApiWrite.of(entry)


NAME = "api_writes"
WRITES_LIMIT = 2.5
"""The most writes per episode that are allowed."""
PODS_LIMIT = 2.2
FLOOR = 1.5
"""The pods of an episode: one in which the agent works and tests run, and a second one for the
blind run of each patch that resolves its task, which is every other one here."""
SYSTEM = "swe-rollout-system"
_PATIENCE_S = 1500.0
_SETTLE_S = 5.0
"""A pause at the end, for the last deletions of pods and the last status."""


@dataclass(frozen=True, slots=True)
class JobSize:
    """The number of episodes of a job."""

    pairs: tuple[str, ...]
    samples: int

    @property
    def episodes(self) -> int:
        """The total number of episodes."""
        return len(self.pairs) * self.samples


FULL = JobSize(("python-dotenv", "semver", "sqlparse", "tomlkit"), 12)
QUICK = JobSize(("semver",), 40)


def main(arguments: Sequence[str]) -> int:
    """Run the job, count its writes and print; exit with 0 if the limit holds."""
    given = parser(
        "scripts/bench api_writes", __doc__, quick="a smaller job, under a minute"
    ).parse_args(arguments)
    size = QUICK if given.quick else FULL
    try:
        report = _measure(size)
    except ScriptError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return report.printed(as_json=given.json)


def _measure(size: JobSize) -> Report:
    checkout = Checkout.here()
    log = checkout.logs / "audit.log"
    if not log.exists():
        raise ScriptError(
            "There is no audit log to count from.",
            why="only the native dev cluster writes one.",
            fix="scripts/dev-cluster up --native",
            exit_code=PREREQUISITE,
        )
    os.environ["KUBECONFIG"] = str(checkout.kubeconfig)
    name = f"bench-{secrets.token_hex(3)}"
    with _namespace(name):
        subprocess.run(
            [checkout.root / "scripts" / "cluster-s3", "up", name],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        since = log.stat().st_size
        _kubectl("apply", "--namespace", name, "--filename", "-", stdin=_job(size))
        masked = _await_end(name, size)
        time.sleep(_SETTLE_S)
        found = [write for write in writes(log, since=since) if write.namespace == name]
    return _report(found, name, size, masked=masked)


def _report(found: Sequence[ApiWrite], namespace: str, size: JobSize, *, masked: int) -> Report:
    workers = f"system:serviceaccount:{namespace}:"
    operator = f"system:serviceaccount:{SYSTEM}:"
    stored = [write for write in found if not write.resource.endswith("/exec")]
    by_worker = [write for write in stored if write.user.startswith(workers)]
    by_operator = [write for write in stored if write.user.startswith(operator)]
    ours = len(by_worker) + len(by_operator)
    platform = len([w for w in stored if w.user.startswith("system:")]) - ours
    per_episode = ours / size.episodes
    pods = sum(each.verb == "create" and each.resource == "pods" for each in by_worker)
    pods_per_episode = pods / size.episodes
    rows = [
        Row(
            "swe-rollout",
            {
                "pods_per_episode": round(pods_per_episode, 3),
                "writes_per_episode": round(per_episode, 3),
                "writes": ours,
                "episodes": size.episodes,
                "masked": masked,
            },
        ),
        *_by_resource("worker", by_worker, size),
        *_by_resource("operator", by_operator, size),
        Row("platform", {"per_episode": round(platform / size.episodes, 3), "writes": platform}),
    ]
    return Report(
        NAME,
        tuple(rows),
        ok=per_episode <= WRITES_LIMIT and pods_per_episode <= PODS_LIMIT and masked == 0,
        ratios={"ours_to_floor": round(per_episode / FLOOR, 3)},
        notes=(
            f"goals, at half resolved: at most {PODS_LIMIT:g} pods and {WRITES_LIMIT:g} writes",
            f"the floor: {FLOOR:g} pod creations",
            "pods include those of gold and base, which each worker runs once for each task",
            "the platform's row: writes of kubelet, scheduler and controllers in response",
        ),
    )


def _by_resource(who: str, found: Sequence[ApiWrite], size: JobSize) -> Iterator[Row]:
    counts = Counter((write.verb, write.resource) for write in found)
    for (verb, resource), count in counts.most_common():
        figures = {"per_episode": round(count / size.episodes, 3), "writes": count}
        yield Row(f"{who}: {verb} {resource}", figures)


def _job(size: JobSize) -> str:
    return json.dumps(
        {
            "apiVersion": "swe-rollout.dev/v1alpha1",
            "kind": "RolloutJob",
            "metadata": {"name": NAME.replace("_", "-")},
            "spec": {
                "dataset": {"releasePairs": {"names": size.pairs}},
                "samples": size.samples,
                "parallelism": 6,
                "policy": {"scripted": {"scenarios": ["gold", "wrong"]}},
                "limits": {"turns": 40, "contextTokens": 131072},
                "sandbox": {"pod": {"resources": {"cpu": "10m", "memory": "256Mi"}}},
                "store": {"uri": "s3://rollouts"},
                "workers": {"count": 2, "secrets": ["dev-s3"]},
            },
        }
    )


def _await_end(namespace: str, size: JobSize) -> int:
    """Wait until the job is complete; return the number of masked episodes."""
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        listing = _kubectl("get", "rj", "--namespace", namespace, "--output", "json")
        (job,) = json.loads(listing)["items"]
        status = job.get("status", {})
        episodes = status.get("episodes", {})
        match status.get("state"):
            case "Complete":
                sys.stderr.write("\n")
                return int(episodes["masked"])
            case "Failed":
                raise ScriptError("The job failed.", why=json.dumps(status["conditions"]))
            case _:
                done, total = episodes.get("committed", 0), size.episodes
                sys.stderr.write(f"\r{done}/{total} episodes ")
                time.sleep(1)
    raise ScriptError(
        f"The job did not end within {_PATIENCE_S:g} s.", fix="kubectl describe rj --all-namespaces"
    )


@contextmanager
def _namespace(name: str) -> Iterator[None]:
    _kubectl("create", "namespace", name)
    try:
        yield
    finally:
        _kubectl("delete", "rj", "--all", "--namespace", name, "--timeout=60s")
        _kubectl("delete", "namespace", name, "--wait=false")


def _kubectl(*arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["kubectl", *arguments], input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ScriptError(
            f"kubectl {' '.join(arguments[:2])} failed.",
            why=done.stderr.strip(),
            fix="Is the operator installed? scripts/build-images --load, then "
            "swe-rollout install | kubectl apply --server-side -f -",
        )
    return done.stdout
