"""The faults of the chaos suite: what each breaks, for how long, and how its end is detected.

`faults.yaml` has them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

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
_SETTLE_S: Final = 1.0
"""After a fault, the time in which turns requested before it end."""
_PATIENCE_S: Final = 180.0
_VICTIM_S: Final = 60.0
_NO_ROOM: Final = """\
evictionHard: {nodefs.available: 99%}
evictionPressureTransitionPeriod: 1s
"""
API_SERVER: Final = "API server"
KILLS: Final = {"worker": 3, "operator": 2, "engine": 3, "sandbox": 3, API_SERVER: 1}
"""What `crash_equal --pods` kills at random, and how often. The API server once a minute: after a
refused connection Kubernetes' own parts wait for up to 30 s, and start no pod in that time.
"""
PODS: Final[Mapping[str, Callable[[Ground, str], list[Json]]]] = {
    "worker": lambda ground, job: ground.worker_pods(job),
    "operator": lambda ground, job: operator_pods(),  # noqa: ARG005
    "engine": lambda ground, job: ground.engine_pods(),  # noqa: ARG005
    "store": lambda ground, job: ground.store_pods(),  # noqa: ARG005
    "sandbox": lambda ground, job: ground.sandbox_pods(job),
}
_PORTS: Final = {"engine": ENGINE_PORT, "store": STORE_PORT}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One fault, in the middle of a job."""

    name: str
    does: str
    """The kind of the fault, as `faults.yaml` lists them."""
    to: str
    fault: Fault = Fault.NONE
    """What a relay does."""
    seconds: float = _OUTAGE_S
    resumes: bool = False
    """Whether an episode must go on where it was."""
    bounded: bool = False
    """Whether the recovery has a time limit."""

    @classmethod
    def of(cls, name: str, row: Mapping[str, Any]) -> Scenario:
        """Return a scenario of the file, whose first key is what is done."""
        (does, to), *rest = row.items()
        fault = Fault(row.get("fault", Fault.NONE))
        return cls(name, does, to, **dict(rest) | {"fault": fault})

    def inflict(self, ground: Ground, job: str) -> None:
        """Break something that the job depends on; return when the fault is over."""
        match self.does:
            case "kill all":
                for pod in PODS[self.to](ground, job):
                    kill_pod(pod)
            case "kill component":
                kill_component(self.to)
            case "stop component":
                with stopped(self.to):
                    time.sleep(self.seconds)
            case "relay":
                for fault in (self.fault, Fault.NONE):
                    self._relay(ground, fault)
                    time.sleep(self.seconds if fault is self.fault else 0.0)
            case "fill disk":
                _fill_disk(ground)
            case does:
                _POD_FAULTS[does](ground, _first(lambda: PODS[self.to](ground, job)))

    def _relay(self, ground: Ground, fault: Fault) -> None:
        if self.to == API_SERVER:
            ground.api.do(fault)
        else:
            ground.relay(_PORTS[self.to], fault)

    def await_recovery(self, ground: Ground, job: str) -> None:
        """Return when the broken part works again."""
        time.sleep(_SETTLE_S)
        if self.to == "operator":
            what = "an operator that is ready"
            until(lambda: any(map(is_ready, operator_pods())), within_s=_PATIENCE_S, what=what)
        else:
            _await_turn(ground, job)


_POD_FAULTS: Final[Mapping[str, Callable[[Ground, Json], None]]] = {
    "kill": lambda _, pod: kill_pod(pod),
    "starve": lambda _, pod: starve_pod(pod),
    "reboot": lambda _, pod: kill_whole_pod(pod),
    "delete": lambda ground, pod: ground.delete_pod(pod["metadata"]["name"]),
    "evict": lambda ground, pod: ground.evict(pod["metadata"]["name"]),
}
SCENARIOS: Final = tuple(
    Scenario.of(name, row)
    for name, row in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items()
)


def _await_turn(ground: Ground, job: str) -> None:
    """Wait until the engine gets another request, or the job has ended."""
    seen: list[int] = []

    def grows() -> bool:
        now = ground.sampled()
        if now is not None:
            seen.append(now)
        is_asked = len(seen) > 1 and seen[-1] > seen[0]
        return is_asked or ground.has_ended(job)

    until(grows, within_s=_PATIENCE_S, what="another turn")


def _fill_disk(ground: Ground) -> None:
    """Make the kubelet believe that the disk is full until it has evicted two pods."""
    before = len(ground.evicted_pods())
    with kubelet_settings(_NO_ROOM):
        until(has_disk_pressure, within_s=_PATIENCE_S, what="a node with disk pressure")
        until(
            lambda: len(ground.evicted_pods()) >= before + 2,
            within_s=_PATIENCE_S,
            what="two pods that were evicted",
        )
    until(lambda: not has_disk_pressure(), within_s=_PATIENCE_S, what="a node with room")


def _first(pods: Callable[[], list[Json]]) -> Json:
    """Return the first of some pods, as soon as there is one."""
    found: list[Json] = []

    def is_found() -> bool:
        found.extend(pods())
        return bool(found)

    until(is_found, within_s=_VICTIM_S, what="a pod that runs")
    return found[0]


def kill_one(what: str, ground: Ground, job: str, rng: random.Random) -> None:
    """Kill one instance of `what`. Raises NotInTimeError if there is none now."""
    if what == API_SERVER:
        kill_component("kube-apiserver")
        return
    pods = sorted(PODS[what](ground, job), key=lambda pod: str(pod["metadata"]["name"]))
    if not pods:
        raise NotInTimeError(f"no {what} runs")
    kill_pod(rng.choice(pods))
