"""A namespace for RolloutJobs on the dev cluster, with its own S3 server, driven by kubectl.

The tests type what a person at a terminal would, and see what a person would see.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.command import swe_rollout
from e2e.records import read_bytes
from swe_rollout.store.bucket import Bucket, create_object

ROOT = Path(__file__).parents[2]
BUCKET = "s3://rollouts"
RJ = "rolloutjobs.swe-rollout.dev"
"""In full: other tests may define kinds with the same short name."""
SYSTEM = "swe-rollout-system"
OPERATOR = "app.kubernetes.io/name=swe-rollout-operator"

Json = dict[str, Any]


def kubectl(*arguments: str, stdin: str = "", check: bool = True) -> str:
    """Run kubectl and return its output; an error is a failed assertion."""
    done = subprocess.run(
        ["kubectl", *arguments], input=stdin, capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def until(true: Callable[[], bool], *, within_s: float, details: Callable[[], str]) -> float:
    """Wait until `true` and return the seconds; after `within_s`, fail with the `details`."""
    start = time.monotonic()
    while not true():
        assert time.monotonic() - start < within_s, f"not within {within_s:g} s: {details()}"
        time.sleep(0.4)
    return time.monotonic() - start


def until_served(crd: str) -> None:
    """Wait until kubectl finds this kind and the API server lists its objects."""
    until(
        lambda: kubectl("get", crd, "-A", "-o", "jsonpath={.kind}", check=False) == "List",
        within_s=60,
        details=lambda: kubectl("get", "crd", crd, "-o", "yaml"),
    )


def _until_former_is_gone() -> None:
    going = "jsonpath={.items[?(@.metadata.deletionTimestamp)].metadata.name}"
    until(
        lambda: not {SYSTEM, RJ} & set(kubectl("get", "namespaces,crds", "-o", going).split()),
        within_s=120,
        details=lambda: "a former installation is still being deleted",
    )


def install_crd() -> None:
    """Install this checkout's kind of job alone, once a former one is gone."""
    _until_former_is_gone()
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "manifests" / "crd"))
    until_served(RJ)


def build_images(*more: str) -> str:
    """Build the workers' image and `more`, load them on the node, and return the workers'."""
    build = [str(ROOT / "scripts" / "build-images"), "worker", *more, "--load"]
    built = subprocess.run(build, check=True, stdout=subprocess.PIPE, text=True).stdout
    (digest,) = re.findall(r"/worker-(\w+)\.tar", built)
    return f"swe-rollout/worker:{digest}"


def install(image: str = "") -> None:
    """Install this checkout's operator as the documentation says, once a former one is gone."""
    _until_former_is_gone()
    manifests = swe_rollout("install", *(("--image", image) if image else ())).stdout
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifests)
    deployment = "deployment/swe-rollout-operator"
    kubectl("rollout", "status", deployment, "--namespace", SYSTEM, "--timeout=180s")
    until_served(RJ)


def uninstall(*options: str) -> str:
    """Remove the installation as the documentation says; return the notes of the command."""
    done = swe_rollout("uninstall", *options)
    kubectl("delete", "--ignore-not-found", "-f", "-", stdin=done.stdout)
    return done.stderr


@contextmanager
def installed(prefix: str) -> Iterator[Site]:
    """Install this checkout's operator, and open a namespace for jobs, with storage."""
    install(build_images("dev-s3"))
    before = dict(os.environ)
    with opened(f"{prefix}-{uuid.uuid4().hex[:6]}") as found:
        yield found
    os.environ.clear()
    os.environ.update(before)


@dataclass(frozen=True)
class Site:
    """A namespace for jobs."""

    namespace: str

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """Run kubectl in this namespace."""
        return kubectl("--namespace", self.namespace, *arguments, stdin=stdin, check=check)

    def apply(self, document: Json) -> None:
        """Run `kubectl apply` on one object."""
        self.kubectl("apply", "--filename", "-", stdin=yaml.safe_dump(document))

    def patch(self, name: str, spec: Json) -> None:
        """Change fields of a job's spec."""
        body = json.dumps({"spec": spec})
        self.kubectl("patch", RJ, name, "--type", "merge", "--patch", body)

    def objects(self, kinds: str, selector: str = "") -> list[Json]:
        """List the objects of these kinds that the selector matches."""
        chosen = ["--selector", selector] if selector else []
        items: list[Json] = json.loads(self.kubectl("get", kinds, *chosen, "-o", "json"))["items"]
        return items

    def sandboxes(self, name: str, roles: str = "agent,grader") -> list[str]:
        """List the sandbox pods of a job that run or will run; ended ones wait to be deleted."""
        chosen = f"swe-rollout.dev/job={name},swe-rollout.dev/role in ({roles})"
        return [
            pod["metadata"]["name"]
            for pod in self.objects("pods", chosen)
            if "deletionTimestamp" not in pod["metadata"]
            and pod["status"].get("phase") != "Succeeded"
        ]

    def workers(self, name: str) -> list[Json]:
        """List the worker pods of a job."""
        return self.objects("pods", f"swe-rollout.dev/job={name},swe-rollout.dev/role=worker")

    def status(self, name: str) -> Json:
        """Read the job's status; empty before the operator has written one."""
        found: Json = json.loads(self.kubectl("get", RJ, name, "-o", "json")).get("status", {})
        return found

    def condition(self, name: str, kind: str) -> Json:
        """Read one condition of the job; empty if it has none of that type."""
        found = [c for c in self.status(name).get("conditions", ()) if c["type"] == kind]
        return found[0] if found else {}

    def until(self, name: str, true: Callable[[], bool], *, within_s: float) -> float:
        """Wait for something of a job; in vain, fail with what `kubectl describe` says of it."""
        return until(true, within_s=within_s, details=lambda: self.describe(name))

    def until_none(self, kinds: str, selector: str = "", *, within_s: float) -> None:
        """Wait until no object of these kinds is left."""
        until(
            lambda: self.objects(kinds, selector) == [],
            within_s=within_s,
            details=lambda: self.kubectl("get", kinds, *(["-l", selector] if selector else [])),
        )

    def until_no_sandboxes(self, name: str, *, within_s: float) -> None:
        """Wait until no sandbox of a job is left."""
        self.until(name, lambda: self.sandboxes(name) == [], within_s=within_s)

    def until_complete(self, name: str, *, within_s: float = 120) -> Json:
        """Wait until the job is Complete and return its status."""
        ended = ("Complete", "Failed")
        self.until(name, lambda: self.status(name).get("state") in ended, within_s=within_s)
        status = self.status(name)
        assert status["state"] == "Complete", self.describe(name)
        return status

    def until_committed(self, name: str, count: int, *, within_s: float = 90) -> dict[str, bytes]:
        """Wait until `count` trajectories are stored and return them."""
        self.until(name, lambda: len(self.stored(name)) >= count, within_s=within_s)
        return self.stored(name)

    def describe(self, name: str) -> str:
        """Run `kubectl describe` on the job."""
        return self.kubectl("describe", RJ, name, check=False)

    def stored(self, name: str) -> dict[str, bytes]:
        """Read every committed trajectory of the job, as stored, by its key."""

        async def load() -> dict[str, bytes]:
            bucket = Bucket.open(BUCKET)
            keys = [key async for key in bucket.keys(f"{name}/episodes")]
            return {
                key: await bucket.get(key)
                for key in sorted(keys)
                if key.endswith("/trajectory.json.zst")
            }

        return asyncio.run(load())

    def records(self, name: str) -> list[Json]:
        """Read every committed trajectory of the job as JSON."""
        return [read_bytes(data) for data in self.stored(name).values()]

    def put_rows(self, name: str, rows: Sequence[Json]) -> Json:
        """Store a dataset of these rows and return it as a spec's `dataset`."""
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        uri = f"{BUCKET}/datasets/{name}-{hashlib.sha256(data).hexdigest()[:8]}.jsonl"
        asyncio.run(create_object(uri, data))
        return {"swebench": {"uri": uri}}


@contextmanager
def opened(namespace: str) -> Iterator[Site]:
    """Create a namespace with storage, whose `AWS_*` this process gets; delete it afterwards."""
    kubectl("create", "namespace", namespace)
    try:
        subprocess.run(
            [ROOT / "scripts" / "cluster-s3", "up", namespace], check=True, capture_output=True
        )
        with _forwarded(namespace) as port:
            os.environ.update(_credentials(namespace, port))
            yield Site(namespace)
    finally:
        kubectl("delete", RJ, "--all", "--namespace", namespace, "--timeout=60s", check=False)
        kubectl("delete", "namespace", namespace, "--wait=false", check=False)


@contextmanager
def _forwarded(namespace: str) -> Iterator[int]:
    """Forward a loopback port of this machine to the namespace's S3 server."""
    command = ["kubectl", "--namespace", namespace, "port-forward", "service/dev-s3", ":9000"]
    forward = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert forward.stdout is not None
        first = forward.stdout.readline()
        yield int(first.split("127.0.0.1:")[1].split()[0])
    finally:
        forward.terminate()
        forward.communicate()


def _credentials(namespace: str, port: int) -> dict[str, str]:
    secret = kubectl("--namespace", namespace, "get", "secret", "dev-s3", "-o", "json")
    data: dict[str, str] = json.loads(secret)["data"]
    values = {key: base64.b64decode(value).decode() for key, value in data.items()}
    return {**values, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}


def job(name: str, scenarios: Sequence[str], **spec: object) -> Json:
    """Build a job over release pairs with small sandboxes; keywords override its spec."""
    return {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        "metadata": {"name": name},
        "spec": {
            "dataset": {"releasePairs": {"names": ["sqlparse"]}},
            "samples": len(scenarios),
            "parallelism": 4,
            "policy": {"scripted": {"scenarios": list(scenarios)}},
            "limits": {"turns": 40, "contextTokens": 131072},
            "sandbox": {"pod": {"resources": small("256Mi")}},
            "store": {"uri": BUCKET},
            "workers": {"count": 1, "secrets": ["dev-s3"], "resources": small("1Gi")},
            **spec,
        },
    }


def small(memory: str) -> Json:
    """Return resources of which many fit on a small machine."""
    return {"cpu": "10m", "memory": memory, "ephemeralStorage": "64Mi"}
