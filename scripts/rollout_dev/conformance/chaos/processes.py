"""Kill processes of pods and of the dev cluster from this machine.

From inside its pod, nobody can send SIGKILL to a container's first process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.process import Process, inner_pid

Json = dict[str, Any]

_CALL_S = 20.0
_PATIENCE_S = 180.0
"""How long to retry a call, because the API server itself may have been killed."""
_PAUSE_S = 0.5
_TRANSIENT = ("ServiceUnavailable", "InternalError", "Timeout", "TooManyRequests", "Conflict")


class NotInTimeError(Exception):
    """An awaited event did not happen."""


def kubectl(
    *arguments: str, namespace: str = "", stdin: str = "", patience_s: float = _PATIENCE_S
) -> str:
    """Run kubectl until it succeeds, and return its output. Raises NotInTimeError."""
    if namespace:
        arguments = ("--namespace", namespace, *arguments)
    end = time.monotonic() + patience_s
    while True:
        said = _kubectl_once(arguments, stdin)
        if said.returncode == 0:
            return said.stdout
        if _is_final(said.stderr) or time.monotonic() > end:
            raise NotInTimeError(f"kubectl {' '.join(arguments)}: {said.stderr.strip()}")
        time.sleep(_PAUSE_S)


def objects(namespace: str, kinds: str, selector: str = "") -> list[Json]:
    """List the objects of these kinds."""
    chosen = ["--selector", selector] if selector else []
    listed = kubectl("get", kinds, *chosen, "--output", "json", namespace=namespace)
    items: list[Json] = json.loads(listed)["items"]
    return items


def until(true: Callable[[], bool], *, within_s: float, what: str) -> float:
    """Wait until `true` holds, and return the seconds it took. Raises NotInTimeError."""
    start = time.monotonic()
    while not true():
        if time.monotonic() - start > within_s:
            raise NotInTimeError(f"{what}: not within {within_s:g} s")
        time.sleep(_PAUSE_S / 2)
    return time.monotonic() - start


def _is_final(error: str) -> bool:
    """Return whether the API server understood the request but refuses it."""
    _, is_answer, reason = error.partition("Error from server (")
    return bool(is_answer) and not reason.startswith(_TRANSIENT)


def _kubectl_once(arguments: tuple[str, ...], stdin: str) -> subprocess.CompletedProcess[str]:
    command = ["kubectl", f"--request-timeout={_CALL_S:g}s", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


_ROOT: Final = Path(__file__).parents[4]
_CGROUPS: Final = Path("/sys/fs/cgroup")
_COMPONENT_S: Final = 60.0
_STARVE_S: Final = 60.0


def first_process(pod_uid: str) -> int | None:
    """Return the pid of the first process of a pod's container; None while there is none."""
    found = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _is_in_pod(entry, pod_uid)
    ]
    # Not always pid 1: the containers of a pod may share a process namespace.
    return min(found, key=inner_pid, default=None)


def _is_in_pod(process: Path, pod_uid: str) -> bool:
    with suppress(OSError):
        mounts = (process / "mountinfo").read_text().splitlines()
        return any(_is_hosts_of(mount.split(), pod_uid) for mount in mounts)
    return False


def _is_hosts_of(mount: list[str], pod_uid: str) -> bool:
    """Return whether a line of mountinfo is the pod's /etc/hosts, which the kubelet mounts."""
    return mount[4] == "/etc/hosts" and f"/pods/{pod_uid}/" in mount[3]


def kill_pod(pod: Json) -> None:
    """SIGKILL the first process of a pod's container. Raises NotInTimeError if there is none."""
    pid = first_process(pod["metadata"]["uid"])
    if pid is None:
        raise NotInTimeError(f"no process of the pod {pod['metadata']['name']} is to be found")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_whole_pod(pod: Json) -> None:
    """SIGKILL every process of a pod at once, even its network's, as a reboot of the node would."""
    uid = str(pod["metadata"]["uid"])
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f"pod{uid}" in (entry / "cgroup").read_text():
                os.kill(int(entry.name), signal.SIGKILL)


def starve_pod(pod: Json) -> None:
    """Limit a container's memory until the kernel kills its first process for lack of it."""
    name, pid = pod["metadata"]["name"], first_process(pod["metadata"]["uid"])
    group = _memory_group(pid) if pid is not None else None
    if pid is None or group is None:
        raise NotInTimeError(f"no process of the pod {name} is to be found")
    process, end = Process.of(pid), time.monotonic() + _STARVE_S
    while process is not None and process.alive:
        if time.monotonic() > end:
            raise NotInTimeError(f"the pod {name} did not run out of memory")
        _limit_memory(group)
        time.sleep(0.02)


def _memory_group(pid: int) -> Path | None:
    """Return the folder of a process's memory cgroup, v1 or v2."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return _CGROUPS / "memory" / path.lstrip("/")
        if not controllers and (_CGROUPS / "cgroup.controllers").exists():
            return _CGROUPS / path.lstrip("/")
    return None


def _limit_memory(group: Path) -> None:
    """Limit a cgroup to the memory that it uses; version 1 refuses less."""
    with suppress(OSError):  # in use, or gone with its last process
        if (group / "memory.max").exists():
            (group / "memory.max").write_text("1")
        else:
            used = (group / "memory.usage_in_bytes").read_text()
            (group / "memory.limit_in_bytes").write_text(used)


@contextmanager
def kubelet_settings(settings: str) -> Iterator[None]:
    """Restart the kubelet with these lines in its configuration, and without after the block."""
    file = Checkout.here().state / "kubelet.yaml"
    before = file.read_text()
    names = {line.partition(":")[0] for line in settings.splitlines()}
    kept = [line for line in before.splitlines() if line.partition(":")[0] not in names]
    try:
        file.write_text("\n".join([*kept, settings]))
        kill_component("kubelet")
        yield
    finally:
        file.write_text(before)
        kill_component("kubelet")


def component(name: str) -> int:
    """Return the pid of a running component of the dev cluster. Raises NotInTimeError."""
    end = time.monotonic() + _COMPONENT_S
    while time.monotonic() < end:
        command = [str(_ROOT / "scripts" / "dev-cluster"), "status", "-o", "json"]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        with suppress(ValueError, KeyError, TypeError):
            return int(json.loads(said.stdout)["components"][name])
        time.sleep(0.5)
    raise NotInTimeError(f"{name} does not run on the dev cluster")


def kill_component(name: str) -> None:
    """SIGKILL a component of the dev cluster, which restarts it."""
    os.kill(component(name), signal.SIGKILL)


@contextmanager
def stopped(name: str) -> Iterator[None]:
    """Stop a component inside the block, so that its clients get no response."""
    pid = component(name)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
