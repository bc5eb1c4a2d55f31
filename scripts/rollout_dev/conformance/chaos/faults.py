"""The faults of the chaos suite: what each breaks, for how long, and how its end is detected."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from rollout_dev.conformance.chaos.counting_job import ENGINE_PORT, STORE_PORT
from rollout_dev.conformance.chaos.ground import Ground, has_disk_pressure, is_ready, operator_pods
from rollout_dev.conformance.chaos.processes import (
    Json,
    NotInTimeError,
    kill_component,
    kill_pod,
    kill_whole_pod,
    kubelet_settings,
    starve_pod,
    stopped,
    until,
)
from rollout_dev.faults.relay import Fault

_OUTAGE_S: Final = 20.0
_NOT_READY_S: Final = 60.0
"""Long enough for a node to count as lost, which takes 40 s without its kubelet."""
_SETTLE_S: Final = 1.0
"""After a fault, the time in which turns requested before it end."""
_PATIENCE_S: Final = 180.0
_VICTIM_S: Final = 60.0
_NO_ROOM: Final = """\
evictionHard: {nodefs.available: 99%}
evictionPressureTransitionPeriod: 1s
"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One fault, in the middle of a job."""

    name: str
    fault: Callable[[Ground, str], None]
    """Breaks something that the job depends on; returns when the fault is over."""
    recovered: Callable[[Ground, str], None]
    """Returns when the broken part works again."""


def _next_turn(ground: Ground, job: str) -> None:
    """Wait until the engine gets another request, or the job has ended."""
    time.sleep(_SETTLE_S)
    seen: list[int] = []

    def grows() -> bool:
        now = ground.sampled()
        if now is not None:
            seen.append(now)
        is_asked = len(seen) > 1 and seen[-1] > seen[0]
        return is_asked or ground.has_ended(job)

    until(grows, within_s=_PATIENCE_S, what="another turn")


def _operator_ready(ground: Ground, job: str) -> None:
    del ground, job
    time.sleep(_SETTLE_S)
    until(
        lambda: any(is_ready(pod) for pod in operator_pods()),
        within_s=_PATIENCE_S,
        what="an operator that is ready",
    )


def _kill_worker(ground: Ground, job: str) -> None:
    kill_pod(_first(lambda: ground.worker_pods(job)))


def _kill_operator(ground: Ground, job: str) -> None:
    del ground, job
    kill_pod(_first(operator_pods))


def _kill_engine(ground: Ground, job: str) -> None:
    del job
    kill_pod(_first(ground.engine_pods))


def _kill_store(ground: Ground, job: str) -> None:
    del job
    kill_pod(_first(ground.store_pods))


def _kill_component(name: str, ground: Ground, job: str) -> None:
    del ground, job
    kill_component(name)


def _stop_component(name: str, seconds: float, ground: Ground, job: str) -> None:
    del ground, job
    with stopped(name):
        time.sleep(seconds)


def _relay(port: int, fault: Fault, ground: Ground, job: str) -> None:
    del job
    ground.relay(port, fault)
    time.sleep(_OUTAGE_S)
    ground.relay(port, Fault.NONE)


def _relay_api(fault: Fault, ground: Ground, job: str) -> None:
    del job
    ground.api.do(fault)
    time.sleep(_OUTAGE_S)
    ground.api.do(Fault.NONE)


def _reboot_worker(ground: Ground, job: str) -> None:
    kill_whole_pod(_first(lambda: ground.worker_pods(job)))


def _starve_worker(ground: Ground, job: str) -> None:
    starve_pod(_first(lambda: ground.worker_pods(job)))


def _fill_disk(ground: Ground, job: str) -> None:
    """Make the kubelet believe that the disk is full until it has evicted two pods."""
    del job
    before = len(ground.evicted_pods())
    with kubelet_settings(_NO_ROOM):
        until(has_disk_pressure, within_s=_PATIENCE_S, what="a node with disk pressure")
        until(
            lambda: len(ground.evicted_pods()) >= before + 2,
            within_s=_PATIENCE_S,
            what="two pods that were evicted",
        )
    until(lambda: not has_disk_pressure(), within_s=_PATIENCE_S, what="a node with room")


def _kill_sandbox(ground: Ground, job: str) -> None:
    kill_pod(_first(lambda: ground.sandbox_pods(job)))


def _kill_all_sandboxes(ground: Ground, job: str) -> None:
    for pod in ground.sandbox_pods(job):
        kill_pod(pod)


def _delete_sandbox(ground: Ground, job: str) -> None:
    ground.delete_pod(_first(lambda: ground.sandbox_pods(job))["metadata"]["name"])


def _evict_sandbox(ground: Ground, job: str) -> None:
    ground.evict(_first(lambda: ground.sandbox_pods(job))["metadata"]["name"])


def _first(pods: Callable[[], list[Json]]) -> Json:
    """Return the first of some pods, as soon as there is one."""
    found: list[Json] = []

    def is_found() -> bool:
        found.extend(pods())
        return bool(found)

    until(is_found, within_s=_VICTIM_S, what="a pod that runs")
    return found[0]


def _kill(name: str) -> Callable[[Ground, str], None]:
    return partial(_kill_component, name)


SCENARIOS: Final = (
    Scenario("worker-killed", _kill_worker, _next_turn),
    Scenario("worker-out-of-memory", _starve_worker, _next_turn),
    Scenario("worker-rebooted", _reboot_worker, _next_turn),
    Scenario("operator-killed", _kill_operator, _operator_ready),
    Scenario("engine-killed", _kill_engine, _next_turn),
    Scenario("store-killed", _kill_store, _next_turn),
    Scenario("sandbox-killed", _kill_sandbox, _next_turn),
    Scenario("sandbox-deleted", _delete_sandbox, _next_turn),
    Scenario("sandbox-evicted", _evict_sandbox, _next_turn),
    Scenario("all-sandboxes-killed", _kill_all_sandboxes, _next_turn),
    Scenario("api-server-killed", _kill("kube-apiserver"), _next_turn),
    Scenario("etcd-killed", _kill("etcd"), _next_turn),
    Scenario("kubelet-killed", _kill("kubelet"), _next_turn),
    Scenario("containerd-killed", _kill("containerd"), _next_turn),
    Scenario(
        "api-server-silent",
        partial(_stop_component, "kube-apiserver", _OUTAGE_S),
        _next_turn,
    ),
    Scenario("api-server-cut-off", partial(_relay_api, Fault.SILENT), _next_turn),
    Scenario("api-server-slow", partial(_relay_api, Fault.SLOW), _next_turn),
    Scenario("api-server-resets", partial(_relay_api, Fault.FLAKY), _next_turn),
    Scenario("api-server-errors", partial(_relay_api, Fault.ERRORS), _next_turn),
    Scenario("disk-pressure", _fill_disk, _next_turn),
    Scenario("node-not-ready", partial(_stop_component, "kubelet", _NOT_READY_S), _next_turn),
    Scenario("engine-refuses", partial(_relay, ENGINE_PORT, Fault.REFUSED), _next_turn),
    Scenario("engine-silent", partial(_relay, ENGINE_PORT, Fault.SILENT), _next_turn),
    Scenario("engine-resets", partial(_relay, ENGINE_PORT, Fault.FLAKY), _next_turn),
    Scenario("engine-errors", partial(_relay, ENGINE_PORT, Fault.ERRORS), _next_turn),
    Scenario("store-refuses", partial(_relay, STORE_PORT, Fault.REFUSED), _next_turn),
    Scenario("store-silent", partial(_relay, STORE_PORT, Fault.SILENT), _next_turn),
    Scenario("store-slow", partial(_relay, STORE_PORT, Fault.SLOW), _next_turn),
    Scenario("store-resets", partial(_relay, STORE_PORT, Fault.FLAKY), _next_turn),
    Scenario("store-errors", partial(_relay, STORE_PORT, Fault.ERRORS), _next_turn),
)

PODS: Final[Mapping[str, Callable[[Ground, str], list[Json]]]] = {
    "worker": lambda ground, job: ground.worker_pods(job),
    "operator": lambda ground, job: operator_pods(),  # noqa: ARG005
    "engine": lambda ground, job: ground.engine_pods(),  # noqa: ARG005
    "sandbox": lambda ground, job: ground.sandbox_pods(job),
}
API_SERVER: Final = "API server"
KILLS: Final = {"worker": 3, "operator": 2, "engine": 3, "sandbox": 3, API_SERVER: 1}
"""What `crash_equal --pods` kills at random, and how often. The API server once a minute: after a
refused connection Kubernetes' own parts wait for up to 30 s, and start no pod in that time.
"""


def kill_one(what: str, ground: Ground, job: str, rng: random.Random) -> None:
    """Kill one instance of `what`. Raises NotInTimeError if there is none now."""
    if what == API_SERVER:
        kill_component("kube-apiserver")
        return
    pods = sorted(PODS[what](ground, job), key=lambda pod: str(pod["metadata"]["name"]))
    if not pods:
        raise NotInTimeError(f"no {what} runs")
    kill_pod(rng.choice(pods))
