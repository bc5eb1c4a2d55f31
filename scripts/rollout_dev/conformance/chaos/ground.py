"""The environment of chaos tests: this checkout, installed on the dev cluster, and a namespace.

The namespace has the policy's engine, the store, and a relay in front of both; jobs reach them only
through the relay. Another relay is in front of the API server. Everything is deleted at the end.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from rollout_dev.bench import generate_server
from rollout_dev.conformance.chaos import api_relay, counting_job
from rollout_dev.conformance.chaos.api_relay import ApiRelay
from rollout_dev.conformance.chaos.counting_job import STORE, STORE_PORT
from rollout_dev.conformance.chaos.processes import Json, first_process, kubectl, objects, until
from rollout_dev.faults import fault_proxy, relay

_ROOT: Final = Path(__file__).parents[4]
_SYSTEM: Final = "swe-rollout-system"
_OPERATOR: Final = "deployment/swe-rollout-operator"
_RJ: Final = "rolloutjobs.swe-rollout.dev"
_RELAY: Final = "chaos"
_ENGINE: Final = "chaos-engine"
_COUNT: Final = "/data/count"
_PARTS: Final = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True, slots=True)
class Ground:
    """A namespace with everything that jobs need."""

    namespace: str
    dataset: str
    """The address of the rows."""
    workers: int
    """Number of workers of each job, each with one task."""
    api: ApiRelay
    harness: bool = False
    """Whether the agent is a program in the sandbox."""

    def apply(self, name: str, *, episodes: int, parallelism: int) -> None:
        """Create a job; the episodes are divided among the workers."""
        document = counting_job.document(
            name,
            dataset=self.dataset,
            host=_RELAY,
            samples=episodes // self.workers,
            parallelism=parallelism,
            workers=self.workers,
            harness=self.harness,
        )
        self._kubectl("apply", "--filename", "-", stdin=json.dumps(document))

    def status(self, name: str) -> Json:
        """Return the job's status; empty before there is one."""
        found: Json = json.loads(self._kubectl("get", _RJ, name, "--output", "json"))
        status: Json = found.get("status", {})
        return status

    def describe(self, name: str) -> str:
        """Return what `kubectl describe` says of the job."""
        return self._kubectl("describe", _RJ, name)

    def last_words(self, name: str) -> list[str]:
        """Return the last known facts about a failed job, and the end of its workers' logs."""
        selector = f"swe-rollout.dev/job={name},swe-rollout.dev/role=worker"
        logs = self._kubectl("logs", "--selector", selector, "--tail=12", "--prefix")
        return [self.describe(name)[-3000:], *logs.splitlines()]

    def until_ended(self, name: str, *, within_s: float) -> str:
        """Wait until the job has ended and return its state. Raises NotInTimeError."""
        until(lambda: self.has_ended(name), within_s=within_s, what=f"the end of the job {name}")
        return str(self.status(name)["state"])

    def has_ended(self, name: str) -> bool:
        """Return whether the job has ended, successfully or not."""
        return self.status(name).get("state") in {"Complete", "Failed"}

    def sampled(self) -> int | None:
        """Return the number of turns sampled so far; None while the engine is not running."""
        (pod,) = self._pods(f"app={_ENGINE}") or (None,)
        pid = first_process(pod["metadata"]["uid"]) if pod else None
        try:
            return Path(f"/proc/{pid}/root{_COUNT}").stat().st_size if pid else None
        except OSError:
            return None

    def records(self, name: str) -> list[Json]:
        """Read every committed trajectory of a job."""
        return [json.loads(line) for line in self._stored("read", name).splitlines()]

    def leftovers(self, name: str) -> list[str]:
        """Return the names of a job's running sandbox pods and remaining journals."""
        mine = f"swe-rollout.dev/job={name},swe-rollout.dev/role in (agent,grader)"
        pods = [
            str(pod["metadata"]["name"])
            for pod in self._pods(mine)
            if pod["status"].get("phase") not in {"Succeeded", "Failed"}
            and "deletionTimestamp" not in pod["metadata"]
        ]
        return [*pods, *self._stored("journals", name).splitlines()]

    def delete(self, name: str) -> None:
        """Delete a job and wait until it is gone."""
        self._kubectl("delete", _RJ, name, "--timeout=90s")

    def relay(self, port: int, fault: relay.Fault) -> None:
        """Make the relay on a port apply this fault from now on."""
        script = f"printf %s {fault} >{relay.rules_file(port)}"
        self._kubectl("exec", f"deployment/{_RELAY}", "--", "sh", "-c", script)

    def evicted_pods(self) -> list[Json]:
        """Return the pods that the kubelet has evicted, including the operator's."""
        pods = [*self._pods(""), *objects(_SYSTEM, "pods")]
        return [pod for pod in pods if pod["status"].get("reason") == "Evicted"]

    def worker_pods(self, name: str) -> list[Json]:
        """List the running worker pods of a job."""
        return self._running(f"swe-rollout.dev/job={name},swe-rollout.dev/role=worker")

    def sandbox_pods(self, name: str) -> list[Json]:
        """List the running agents' pods of a job."""
        return self._running(f"swe-rollout.dev/job={name},swe-rollout.dev/role=agent")

    def engine_pods(self) -> list[Json]:
        """Return the engine's pod."""
        return self._running(f"app={_ENGINE}")

    def store_pods(self) -> list[Json]:
        """Return the store's pod."""
        return self._running("app.kubernetes.io/name=dev-s3")

    def evict(self, pod: str) -> None:
        """Ask the API server to evict a pod, as a drain of its node does."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        kubectl("create", "--raw", path, "--filename", "-", stdin=json.dumps(eviction))

    def delete_pod(self, pod: str) -> None:
        """Delete a pod at once."""
        self._kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    def _running(self, selector: str) -> list[Json]:
        pods = self._pods(selector)
        return [
            pod
            for pod in pods
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def _pods(self, selector: str) -> list[Json]:
        return objects(self.namespace, "pods", selector)

    def _stored(self, *arguments: str) -> str:
        return _in_store(self.namespace, *arguments)

    def _kubectl(self, *arguments: str, stdin: str = "") -> str:
        return kubectl(*arguments, namespace=self.namespace, stdin=stdin)


def operator_pods() -> list[Json]:
    """Return the operator's running pods."""
    pods = objects(_SYSTEM, "pods", "app.kubernetes.io/name=swe-rollout-operator")
    return [pod for pod in pods if pod["status"].get("phase") == "Running"]


def has_disk_pressure() -> bool:
    """Return whether the node reports that its disk is full."""
    (node,) = objects("", "nodes")
    conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
    return conditions.get("DiskPressure") == "True"


def is_ready(pod: Json) -> bool:
    """Return whether all containers of a pod are ready."""
    return all(each.get("ready") for each in pod["status"].get("containerStatuses", [{}]))


@contextmanager
def opened(
    *, turns: int, pause_s: float, workers: int = 1, harness: bool = False
) -> Iterator[Ground]:
    """Install this checkout and create a namespace, which is deleted at the end.

    `turns` counts all turns of an episode; the engine takes `pause_s` for each.
    """
    image = _install()
    namespace = f"chaos-{secrets.token_hex(3)}"
    with api_relay.opened() as api:
        # Open connections would not pass through the relay.
        kubectl("rollout", "restart", _OPERATOR, namespace=_SYSTEM)
        kubectl("rollout", "status", _OPERATOR, "--timeout=120s", namespace=_SYSTEM)
        kubectl("create", "namespace", namespace)
        try:
            sys.stderr.write("the store, the engine and the relay start\n")
            parts = _parts(image, pause_s, counting_job.script(turns, harness=harness))
            _start_parts(namespace, parts)
            address = f"{STORE}/datasets/count-{turns}.jsonl"
            original = _released_row()
            rows = [counting_job.row(original, turns, number + 1) for number in range(workers)]
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            _in_store(namespace, "write", address, stdin=lines)
            yield Ground(namespace, address, workers, api, harness)
        finally:
            kubectl("delete", _RJ, "--all", "--timeout=90s", namespace=namespace)
            kubectl("delete", "namespace", namespace, "--wait=false")


def _start_parts(namespace: str, parts: Json) -> None:
    command = [str(_ROOT / "scripts" / "cluster-s3"), "up", namespace]
    subprocess.run(command, check=True, capture_output=True)
    # Its data would be lost with its pod.
    never_evicted = {"priorityClassName": "system-cluster-critical"}
    patch = json.dumps({"spec": {"template": {"spec": never_evicted}}})
    kubectl("patch", "deployment", "dev-s3", "--patch", patch, namespace=namespace)
    kubectl("apply", "--filename", "-", namespace=namespace, stdin=json.dumps(parts))
    _point_store_at_relay(namespace)
    for name in ("dev-s3", _ENGINE, _RELAY):
        ready = ("rollout", "status", f"deployment/{name}", "--timeout=120s")
        kubectl(*ready, namespace=namespace)


def _install() -> str:
    """Install this checkout's operator; return the workers' image."""
    sys.stderr.write("the images are built, and this checkout is installed\n")
    names = ("worker", "dev-s3", "release-pairs")
    build = [str(_ROOT / "scripts" / "build-images"), *names, "--load"]
    built = subprocess.run(build, check=True, stdout=subprocess.PIPE, text=True).stdout
    (digest,) = re.findall(r"/worker-(\w+)\.tar", built)
    image = f"swe-rollout/worker:{digest}"
    manifests = _rollout("install", "--image", image)
    kubectl("apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=manifests)
    deployment = "deployment/swe-rollout-operator"
    kubectl("rollout", "status", deployment, "--timeout=180s", namespace=_SYSTEM)
    return image


def _released_row() -> Json:
    lines = _rollout("datasets", "rows", "release-pairs").splitlines()
    rows: list[Json] = [json.loads(line) for line in lines]
    return next(row for row in rows if "python-dotenv" in row["instance_id"])


def _parts(image: str, pause_s: float, script: str) -> Json:
    """Return the manifests of `ground.yaml` for a run."""
    parts: Json = yaml.safe_load(_PARTS.read_text("utf-8"))
    key, files, *services = parts["items"]
    key["stringData"]["SWE_ROLLOUT_SANDBOX_KEY"] = secrets.token_hex(32)
    sources = {Path(str(each.__file__)) for each in (generate_server, relay, fault_proxy)}
    files["data"] = {each.name: each.read_text("utf-8") for each in sources}
    files["data"]["script.json"] = script
    for deployment in services[::2]:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        container["image"] = image
        if deployment["metadata"]["name"] == _ENGINE:
            container["command"] += ["--pause", f"{pause_s:g}"]
    return parts


def _point_store_at_relay(namespace: str) -> None:
    """Let jobs reach the store through the relay."""
    address = f"http://{_RELAY}.{namespace}.svc.cluster.local:{STORE_PORT}"
    patch = json.dumps({"stringData": {"AWS_ENDPOINT_URL": address}})
    kubectl("patch", "secret", "dev-s3", "--patch", patch, namespace=namespace)


def _in_store(namespace: str, *arguments: str, stdin: str = "") -> str:
    program = [sys.executable, "-P", "-m", "rollout_dev.conformance.chaos.stored", *arguments]
    command = [str(_ROOT / "scripts" / "cluster-s3"), "exec", namespace, "--", *program]
    said = subprocess.run(command, input=stdin, check=True, capture_output=True, text=True)
    return said.stdout


def _rollout(*arguments: str) -> str:
    command = [sys.executable, "-m", "swe_rollout.cli.main", *arguments]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    return said.stdout
