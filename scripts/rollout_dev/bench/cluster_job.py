"""RolloutJobs of release pairs on the dev cluster, with their writes and their time.

Each place is a namespace with an S3 server. Writes are counted from the dev cluster's audit log.
Used by `api_writes` and `recycle`.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from rollout_dev.dev_cluster.api import Json, inner, text
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import PREREQUISITE, ScriptError
from swe_rollout.spec.status import RolloutJobStatus, State

SYSTEM = "swe-rollout-system"
SMALL: Final[Mapping[str, object]] = {"resources": {"cpu": "10m", "memory": "256Mi"}}
"""Options of the sandboxes: small pods."""
_PATIENCE_S = 1500.0
_SETTLE_S = 5.0
"""A pause at the end, for the last deletions of pods and the last status."""


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


@dataclass(frozen=True, slots=True)
class JobSize:
    """The number of episodes of a job."""

    pairs: tuple[str, ...]
    samples: int

    @property
    def episodes(self) -> int:
        """The total number of episodes."""
        return len(self.pairs) * self.samples


@dataclass(frozen=True, slots=True)
class JobRun:
    """A complete job: what was written for it, and how long it took."""

    by_worker: Sequence[ApiWrite]
    by_operator: Sequence[ApiWrite]
    platform: int
    """Writes of kubelet, scheduler and controllers in response."""
    masked: int
    seconds: float
    """Time from the creation of the job to its completion."""

    @property
    def pods(self) -> int:
        """The number of pods that the workers created."""
        return sum(w.verb == "create" and w.resource == "pods" for w in self.by_worker)


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace with an S3 server."""

    checkout: Checkout
    namespace: str

    def run(
        self, name: str, size: JobSize, sandbox: Mapping[str, object], *extensions: Path
    ) -> JobRun:
        """Run a job with such sandboxes to its end. Files of `extensions` travel with it."""
        log = self.checkout.logs / "audit.log"
        since = log.stat().st_size
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            json.dump(_job(name, size, sandbox), file)
            file.flush()
            launch = [Path(sys.executable).with_name("swe-rollout"), "launch", file.name]
            files = [part for each in extensions for part in ("--with", each)]
            # The store, which takes the files, can be reached only from inside the cluster.
            reach = [self.checkout.root / "scripts" / "cluster-s3", "exec", self.namespace, "--"]
            _run(*reach, *launch, *files, "--namespace", self.namespace, "--detach")
        status, seconds = self._completed(name, size)
        time.sleep(_SETTLE_S)
        found = [
            write
            for write in writes(log, since=since)
            if write.namespace == self.namespace and not write.resource.endswith("/exec")
        ]
        by_worker, by_operator = _by(found, self.namespace), _by(found, SYSTEM)
        system = sum(write.user.startswith("system:") for write in found)
        return JobRun(
            by_worker,
            by_operator,
            platform=system - len(by_worker) - len(by_operator),
            masked=status.episodes.masked,
            seconds=seconds,
        )

    def _completed(self, name: str, size: JobSize) -> tuple[RolloutJobStatus, float]:
        """Wait until the job is complete; return its status and the seconds that it took."""
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            found: Json = json.loads(
                kubectl("get", "rj", name, "--namespace", self.namespace, "--output", "json")
            )
            status = RolloutJobStatus.model_validate(inner(found, "status") or {})
            if status.state is State.FAILED:
                why = "; ".join(each.message for each in status.conditions)
                raise ScriptError("The job failed.", why=why)
            if status.completion_time is not None:
                sys.stderr.write("\n")
                created = datetime.fromisoformat(
                    text(inner(found, "metadata", "creationTimestamp"))
                )
                took = datetime.fromisoformat(status.completion_time) - created
                return status, took.total_seconds()
            sys.stderr.write(f"\r{name}: {status.episodes.committed}/{size.episodes} episodes ")
            time.sleep(1)
        raise ScriptError(
            f"The job did not end within {_PATIENCE_S:g} s.",
            fix="kubectl describe rj --all-namespaces",
        )


def _by(found: Sequence[ApiWrite], namespace: str) -> list[ApiWrite]:
    return [w for w in found if w.user.startswith(f"system:serviceaccount:{namespace}:")]


def _job(name: str, size: JobSize, sandbox: Mapping[str, object]) -> Mapping[str, object]:
    return {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        "metadata": {"name": name},
        "spec": {
            "dataset": {"releasePairs": {"names": size.pairs}},
            "samples": size.samples,
            "parallelism": 6,
            "policy": {"scripted": {"scenarios": ["gold", "wrong"]}},
            "limits": {"turns": 40, "contextTokens": 131072},
            "sandbox": sandbox,
            "store": {"uri": "s3://rollouts"},
            "workers": {"count": 2, "secrets": ["dev-s3"]},
        },
    }


@contextmanager
def new_place() -> Iterator[Place]:
    """Make a namespace on the dev cluster, and delete it after the block."""
    checkout = Checkout.here()
    if not (checkout.logs / "audit.log").exists():
        raise ScriptError(
            "There is no audit log to count from.",
            why="only the native dev cluster writes one.",
            fix="scripts/dev-cluster up --native",
            exit_code=PREREQUISITE,
        )
    os.environ["KUBECONFIG"] = str(checkout.kubeconfig)
    name = f"bench-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    try:
        _run(checkout.root / "scripts" / "cluster-s3", "up", name)
        yield Place(checkout, name)
    finally:
        kubectl("delete", "rj", "--all", "--namespace", name, "--timeout=60s")
        kubectl("delete", "namespace", name, "--wait=false")


def kubectl(*arguments: str, stdin: str = "") -> str:
    """Run kubectl and return what it prints. Raises ScriptError."""
    return _run("kubectl", *arguments, stdin=stdin)


def _run(*command: object, stdin: str = "") -> str:
    words = [*map(str, command)]
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ScriptError(
            f"{' '.join(words[:3])} failed.",
            why=done.stderr.strip()[-2000:],
            fix="Is the operator installed? scripts/build-images --load, then "
            "swe-rollout install | kubectl apply --server-side -f -",
        )
    return done.stdout
