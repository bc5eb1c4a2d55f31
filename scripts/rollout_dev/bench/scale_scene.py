"""A cluster of thousands of nodes that do not exist, for `bench scale`.

kwok plays the nodes and the life of their pods, `fleet-kubelet` what is inside them: the API
server, the scheduler and everything of ours are real. All of it runs in the dev cluster's own
network.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from rollout_dev.bench.cluster_job import kubectl
from rollout_dev.bench.common import repeatedly
from rollout_dev.dev_cluster import binaries, native, pki
from rollout_dev.dev_cluster.api import Api, inner, text
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.components import python_path
from rollout_dev.dev_cluster.errors import Progress, ScriptError
from rollout_dev.dev_cluster.network import API_PORT, NODE_ADDRESS
from rollout_dev.dev_cluster.process import Process, read_record, start_detached, tail

LABEL: Final = "fleet"
"""Label and taint of the nodes."""
_KUBELET_PORT: Final = 10350
_ENGINE_PORT: Final = 30400
_READY_S: Final = 300.0
_LEASE_S: Final = 120
"""Nodes renew their lease four times in this time."""
_CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "2Ti", "pods": "110"}
_FIX: Final = "works = True"
_FILE: Final = (
    "diff --git a/{0} b/{0}\nnew file mode 100644\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+{1}\n"
)
_GOLD: Final = _FILE.format("fix.py", _FIX)
_WRONG: Final = _FILE.format("REVIEWED.txt", "# reviewed")
_COMMAND: Final = "./run-hidden-tests"


def rows(count: int) -> list[dict[str, object]]:
    """Make tasks: one file is missing, and a test in TAP's format says so."""
    return [
        {
            "instance_id": f"fleet-{number:04}",
            "repo": "fleet/task",
            "base_commit": "b" * 40,
            "problem_statement": "A file is missing. Write fix.py.",
            "patch": _GOLD,
            "test_patch": _FILE.format("tests/fix.tap", "# hidden"),
            "FAIL_TO_PASS": ["works"],
            "PASS_TO_PASS": ["stays"],
            "image": f"fleet/task-{number:04}:1",
            "test_cmd": _COMMAND,
            "log_parser": "tap",
        }
        for number in range(count)
    ]


def _answers(command_s: float, tests_s: float) -> list[dict[str, object]]:
    """Answer what an episode and its grading ask, as `fleet/supervisor.go` reads it."""
    failed, passed = "not ok 1 works\nok 2 stays\n1..2\n", "ok 1 works\nok 2 stays\n1..2\n"
    return [
        {"in": "# Check out $BASE", "echo": "BASE"},
        {"in": "MAX_BYTES=", "after": "git apply --whitespace", "stdout": _GOLD},
        {"in": "MAX_BYTES=", "stdout": _WRONG},
        {"in": _COMMAND, "after": f"+{_FIX}", "stdout": passed, "seconds": tests_s},
        {"in": _COMMAND, "stdout": failed, "exit": 1, "seconds": tests_s},
        {"in": "git log --oneline", "stdout": "bbbbbbb base\nREADME\n", "seconds": command_s},
        {"in": "git apply --whitespace", "stdout": " fix.py | 1 +\n", "seconds": command_s},
    ]


@dataclass(frozen=True, slots=True)
class Fleet:
    """The fake nodes, and the engine's address for pods."""

    checkout: Checkout
    engine: str
    processes: Mapping[str, Process]


@contextmanager
def fleet(
    checkout: Checkout, *, nodes: int, tasks: int, turn_s: float, folder: Path
) -> Iterator[Fleet]:
    """Start kwok, its nodes, the pods' exec endpoint and the engine; end them."""
    progress = Progress()
    kwok, kubelet = (binaries.ensure(binaries.group(name), progress) for name in ("kwok", "fleet"))
    answers, dataset = folder / "answers.json", folder / "rows.jsonl"
    answers.write_text(json.dumps(_answers(command_s=0.2, tests_s=5.0)))
    dataset.write_text("".join(f"{json.dumps(row)}\n" for row in rows(tasks)))
    commands: dict[str, list[str]] = {
        "fleet-kubelet": [
            str(kubelet / "fleet-kubelet"),
            *(f"{NODE_ADDRESS}:{_KUBELET_PORT}", str(answers)),
            *(f"https://{NODE_ADDRESS}:{API_PORT}", str(checkout.pki)),
        ],
        "kwok": [
            str(kwok / "kwok"),
            "-v=WARN",
            f"--config={Path(__file__).with_name('scale_stages.yaml')}",
            f"--kubeconfig={checkout.pki / pki.ADMIN.file}",
            *("--manage-nodes-with-label-selector", LABEL),
            *("--cidr=10.128.0.1/9", f"--node-ip={NODE_ADDRESS}", f"--node-port={_KUBELET_PORT}"),
            # Its own exec endpoint, which nobody asks.
            *("--server-address=127.0.0.1:10351", f"--node-lease-duration-seconds={_LEASE_S}"),
        ],
        "engine": [
            *(sys.executable, "-m", "rollout_dev.bench.scale_engine"),
            *(str(dataset), NODE_ADDRESS, str(_ENGINE_PORT), str(turn_s)),
        ],
    }
    inside = ["nsenter", f"--net={native.network_namespace(checkout)}", "--"]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    with ExitStack() as stack:
        processes = {}
        for name, command in commands.items():
            log = checkout.logs / f"{name}.log"
            process = start_detached([*inside, *command], log, env=environment)
            stack.callback(process.end, patience_seconds=5)
            processes[name] = process
        stack.callback(_delete_nodes)
        kubectl("create", "-f", "-", stdin=_nodes(nodes))
        for name, process in processes.items():
            if not process.alive:
                raise ScriptError(f"{name} ended.", why=tail(checkout.logs / f"{name}.log"))
        _await_ready(nodes)
        yield Fleet(checkout, f"http://{NODE_ADDRESS}:{_ENGINE_PORT}", processes)


def _nodes(count: int) -> str:
    # A lease of an earlier node of this name would belong to another kwok for a while.
    run = secrets.token_hex(3)
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": f"fleet-{run}-{number}", "labels": {LABEL: "yes"}},
                    "spec": {"taints": [{"key": LABEL, "value": "yes", "effect": "NoSchedule"}]},
                    # As kubelets do since 1.36: the API server passes their streams on as they are.
                    "status": {
                        "declaredFeatures": ["ExtendWebSocketsToKubelet"],
                        "capacity": _CAPACITY,
                        "allocatable": _CAPACITY,
                    },
                }
                for number in range(count)
            ],
        }
    )


def _await_ready(count: int) -> None:
    end = time.monotonic() + _READY_S
    states = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
    # `kubectl wait` looks at one after the other.
    while kubectl("get", "nodes", "-l", LABEL, "-o", states).split().count("True") < count:
        if time.monotonic() > end:
            raise ScriptError(f"The {count} nodes are not ready after {_READY_S:g} s.")
        time.sleep(1)


def _delete_nodes() -> None:
    kubectl("delete", "node", "-l", LABEL, "--wait=false")


@dataclass(slots=True)
class PodTimes:
    """When pods of a namespace were seen, ran and ended, in seconds of the monotonic clock."""

    created: dict[str, float] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)

    @property
    def most_at_once(self) -> int:
        """The highest number of pods that ran at a time."""
        changes = [(at, 1) for at in self.running.values()]
        changes += [(at, -1) for uid, at in self.gone.items() if uid in self.running]
        now = most = 0
        for _, change in sorted(changes):
            now += change
            most = max(most, now)
        return most

    def per_s(self, count: int) -> float:
        """Return the creations a second until the first `count` pods were there."""
        first = sorted(self.created.values())[:count]
        return (len(first) - 1) / max(first[-1] - first[0], 0.001) if len(first) > 1 else 0.0

    @contextmanager
    def watched(self, checkout: Checkout, namespace: str) -> Iterator[Self]:
        """Watch the sandboxes of a namespace."""
        record = read_record(checkout)
        api = Api.outside(checkout, pki.ADMIN, record.port if record else 0)
        path = f"/api/v1/namespaces/{namespace}/pods"
        version = text(inner(api.get(path), "metadata", "resourceVersion"))
        thread = threading.Thread(target=self._follow, args=(api, path, version), daemon=True)
        thread.start()
        yield self

    def _follow(self, api: Api, path: str, version: str) -> None:
        while True:
            for event in api.watch(path, version):
                now, pod = time.monotonic(), inner(event, "object")
                version = text(inner(pod, "metadata", "resourceVersion")) or version
                uid = text(inner(pod, "metadata", "uid"))
                if inner(pod, "metadata", "labels", "swe-rollout.dev/role") not in SANDBOXES:
                    continue
                self.created.setdefault(uid, now)
                phase = inner(pod, "status", "phase")
                if phase == "Running":
                    self.running.setdefault(uid, now)
                if phase in {"Succeeded", "Failed"} or inner(event, "type") == "DELETED":
                    self.gone.setdefault(uid, now)


SANDBOXES: Final = ("agent", "grader")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_WORKER: Final = re.compile(r"swe.rollout\S*\0worker")
_OPERATOR: Final = re.compile(r"rollout_operator")


@dataclass(slots=True)
class Usage:
    """CPU and memory of the processes that take part, by their role."""

    cpu_s: dict[tuple[str, int], float] = field(default_factory=dict)
    before: dict[tuple[str, int], float] = field(default_factory=dict)
    peak_mib: dict[str, float] = field(default_factory=dict)
    """The most that all processes of a role took at a time."""

    def cpu_of(self, role: str) -> float:
        """Return the CPU seconds of a role since the beginning."""
        return sum(s - self.before.get(k, 0.0) for k, s in self.cpu_s.items() if k[0] == role)

    @contextmanager
    def sampled(self, fleet: Fleet) -> Iterator[Self]:
        """Sample every two seconds."""
        known = {process.pid: name for name, process in fleet.processes.items()}
        parts = native.component_pids(fleet.checkout)
        known |= {pid: name for name, pid in parts.items() if pid is not None}
        self._sample(known)
        self.before = {key: s for key, s in self.cpu_s.items() if key[0] != "worker"}
        with repeatedly(lambda: self._sample(known), lambda: 2.0):
            yield self

    def _sample(self, known: Mapping[int, str]) -> None:
        now: dict[str, float] = {}
        for pid, role in {**{pid: _role(pid) for pid in _all_pids()}, **known}.items():
            if role is None:
                continue
            try:
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It has ended.
            self.cpu_s[role, pid] = (int(stat[11]) + int(stat[12])) / _TICKS
            now[role] = now.get(role, 0.0) + int(stat[21]) * _PAGE / 2**20
        for role, mib in now.items():
            self.peak_mib[role] = max(mib, self.peak_mib.get(role, 0.0))


def pids(role: str) -> list[int]:
    """Return the processes of workers or of the operator."""
    return [pid for pid in _all_pids() if _role(pid) == role]


def _all_pids() -> Iterator[int]:
    return (int(folder.name) for folder in Path("/proc").glob("[0-9]*"))


def _role(pid: int) -> str | None:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return None
    if _WORKER.search(command):
        return "worker"
    return "operator" if _OPERATOR.search(command) else None


def requests() -> dict[str, float]:
    """Return how many requests the API server has had, by verb and resource."""
    found: dict[str, float] = {}
    for line in kubectl("get", "--raw", "/metrics").splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            name = "/".join(filter(None, (labels["resource"], labels["subresource"])))
            key = f"{labels['verb']} {name}"
            found[key] = found.get(key, 0.0) + float(line.rpartition(" ")[2])
    return found
