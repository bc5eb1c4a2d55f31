"""The cluster's first process: PID 1 of its own pid, mount and network namespace.

It sets up the namespaces, starts the components, restarts those that end, and reaps orphans. All
parts of the cluster (shims, pods, mounts, interfaces, rules) live in these namespaces, and the
kernel removes them when this process ends: nothing can be left over.

`native` starts it, and reads its progress from the file `boot`.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rollout_dev.dev_cluster import components, network, pki, policy
from rollout_dev.dev_cluster.api import Api, inner, items
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.components import Component
from rollout_dev.dev_cluster.errors import Progress, ScriptError
from rollout_dev.dev_cluster.images import Containerd

UP = "up"
"""The last line of `boot` once the cluster is usable."""
FAILED = "failed "
"""The prefix of the last line of `boot` if a component keeps ending; its name follows."""

_RESTART_SECONDS = 1.0
_ATTEMPTS_WHILE_BOOTING = 3
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}


class Node:
    """The components, and their restarts."""

    def __init__(self, checkout: Checkout, *, listener: int) -> None:
        self._checkout = checkout
        self._listener = listener
        self._running: dict[int, Component] = {}
        self._due: list[tuple[float, Component]] = []
        self._ends: dict[str, int] = {}
        self._up = False
        self._ending = False

    def run(self) -> None:
        """Boot, then keep the components running until SIGTERM."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._boot()
        self._say(UP)
        self._up = True
        while not self._ending:
            self._step(None)
        self._shut_down()

    def _boot(self) -> None:
        _prepare_mounts(self._checkout)
        socket.sethostname(network.NODE_NAME)
        network.configure()
        policy.install_rules()
        for component in components.foundation(self._checkout, listener=self._listener):
            self._start(component)
        containerd = Containerd()
        self._until(containerd.ready, "containerd responds")
        containerd.load(self._checkout.state / "pause.tar", Progress())
        api = Api.inside(self._checkout, pki.ADMIN)
        self._until(api.ready, "API server ready")
        for component in components.clients(self._checkout):
            self._start(component)
        # The last run's "Ready" may still be stored: this run's kubelet must respond, too.
        self._until(lambda: _kubelet_healthy() and _node_ready(api), "node Ready")
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._until(lambda: api.get(account) is not None, "default service account exists")
        self._until(_dns_responds, "CoreDNS responds")

    def _until(self, check: Callable[[], bool], step: str) -> None:
        while not self._ending:
            try:
                done = check()
            except (OSError, http.client.HTTPException, ScriptError):
                done = False  # It is not up yet; the caller of `up` limits the time.
            if done:
                self._say(step)
                return
            self._step(0.1)
        sys.exit(0)

    def _step(self, seconds: float | None) -> None:
        """Wait for a signal or that long; reap ended processes and start those that are due."""
        if self._due:
            wait = max(0.0, self._due[0][0] - time.monotonic())
            seconds = wait if seconds is None else min(seconds, wait)
        received = (
            signal.sigwaitinfo(_SIGNALS)
            if seconds is None
            else signal.sigtimedwait(_SIGNALS, seconds)
        )
        if received is not None and received.si_signo != signal.SIGCHLD:
            self._ending = True
        self._reap()
        while self._due and self._due[0][0] <= time.monotonic():
            self._start(self._due.pop(0)[1])

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            component = self._running.pop(pid, None)
            if component is not None and not self._ending:
                self._ended(component, os.waitstatus_to_exitcode(status))

    def _ended(self, component: Component, code: int) -> None:
        count = self._ends[component.name] = self._ends.get(component.name, 0) + 1
        sys.stderr.write(f"{component.name} ended with {code} (time {count}), restarting it\n")
        sys.stderr.flush()
        if not self._up and count >= _ATTEMPTS_WHILE_BOOTING:
            self._say(f"{FAILED}{component.name}")
            sys.exit(1)
        self._due.append((time.monotonic() + _RESTART_SECONDS, component))
        self._write_pids()

    def _start(self, component: Component) -> None:
        log = self._checkout.logs / f"{component.name}.log"
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        if component.socket is not None:
            actions.append((os.POSIX_SPAWN_DUP2, component.socket, 3))
        pid = os.posix_spawn(
            component.command[0],
            component.command,
            {
                "PATH": components.search_path(),
                "PYTHONPATH": components.python_path(),
                "HOME": str(self._checkout.state),
            },
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE,),
        )
        self._running[pid] = component
        self._write_pids()

    def _write_pids(self) -> None:
        """Write the components' pids in this namespace, for `status`."""
        pids = {component.name: pid for pid, component in self._running.items()}
        partial = self._checkout.state / "components.json.new"
        partial.write_text(json.dumps(pids))
        partial.rename(self._checkout.state / "components.json")

    def _say(self, line: str) -> None:
        with (self._checkout.state / "boot").open("a") as file:
            file.write(f"{line}\n")

    def _shut_down(self) -> None:
        """Let etcd and containerd close their files; the kernel ends the rest with this process."""
        closing = {"etcd", "containerd"}
        for pid, component in self._running.items():
            # The API server would wait a minute for its watches to close, and etcd for the API
            # server; it is stateless, so it is killed.
            is_server = component.name == "kube-apiserver"
            os.kill(pid, signal.SIGKILL if is_server else signal.SIGTERM)
        deadline = time.monotonic() + 8
        while time.monotonic() < deadline and any(
            component.name in closing for component in self._running.values()
        ):
            self._step(0.1)


def _prepare_mounts(checkout: Checkout) -> None:
    """Mount private folders over Kubernetes' fixed paths; pods' mounts stay shared inside."""
    _mount("--make-rshared", "/")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for name in ("containerd", "cni", "netns"):
        Path("/run", name).mkdir()
    fixed_paths = (
        "/var/lib/kubelet",
        "/var/lib/cni",
        "/var/lib/swe-rollout",
        "/var/log/containers",
    )
    for fixed in fixed_paths:
        private = checkout.state / "host" / fixed.lstrip("/")
        for folder in (Path(fixed), private):
            folder.mkdir(parents=True, exist_ok=True)
        _mount("--bind", str(private), fixed)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _kubelet_healthy() -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", 10248, timeout=2)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.client.OK
    finally:
        connection.close()


def _node_ready(api: Api) -> bool:
    node = api.get(f"/api/v1/nodes/{network.NODE_NAME}")
    return any(
        inner(condition, "type") == "Ready" and inner(condition, "status") == "True"
        for condition in items(inner(node, "status", "conditions"))
    )


def _dns_responds() -> bool:
    """Ask CoreDNS for the API server's service."""
    number = secrets.randbits(16)
    labels = ["kubernetes", "default", "svc", "cluster", "local"]
    name = b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\0"
    query = struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + name + struct.pack(">2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        try:
            client.sendto(query, (network.NODE_ADDRESS, 53))
            response = client.recv(512)
        except OSError:
            return False
    echoed, flags, _, records = struct.unpack(">4H", response[:8])
    return bool(echoed == number and flags & 0xF == 0 and records > 0)


def main() -> None:
    """Run as PID 1; the argument is the descriptor of the loopback listening socket."""
    Node(Checkout.here(), listener=int(sys.argv[1])).run()


if __name__ == "__main__":
    main()
