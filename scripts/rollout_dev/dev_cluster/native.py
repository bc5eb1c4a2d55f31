"""The native cluster from outside: start it, stop it, inspect it, run commands in it."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

from rollout_dev.dev_cluster import binaries, cgroup, components, pki, toolchain
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import PREREQUISITE, Progress, ScriptError
from rollout_dev.dev_cluster.images import Containerd, write_pause_image
from rollout_dev.dev_cluster.network import NODE_ADDRESS
from rollout_dev.dev_cluster.node import FAILED, UP
from rollout_dev.dev_cluster.process import (
    Forward,
    Kind,
    Process,
    Record,
    children,
    delete_record,
    inner_pid,
    read_record,
    start_detached,
    tail,
)

_BOOT_SECONDS = 180


def up(checkout: Checkout, progress: Progress) -> None:
    """Start the cluster with the state of the last run, unless it is running."""
    found = read_record(checkout)
    if found is not None and found.alive and _boot_lines(checkout)[-1:] == [UP]:
        progress.say("the cluster is up already")
        return
    down(checkout, progress)
    _check_machine(checkout)
    toolchain.ensure_packages(toolchain.CLUSTER, progress)
    binaries.ensure_cluster(progress)
    _fresh_logs(checkout)
    with _listen(found.port if found else checkout.preferred_port) as listener:
        port = int(listener.getsockname()[1])
        pki.ensure(checkout, port=port)
        components.write_settings(checkout)
        write_pause_image(checkout.state / "pause.tar")
        cgroup.create(checkout.cgroup)
        (checkout.state / "boot").unlink(missing_ok=True)
        node = _start_node(checkout, listener)
    Record(Kind.NATIVE, str(checkout.root), port, node).write(checkout)
    _await_boot(checkout, node, progress)


def down(checkout: Checkout, progress: Progress) -> None:
    """Stop the cluster, leaving no process, mount, namespace, interface or cgroup."""
    found = read_record(checkout)
    if found is not None:
        if found.alive:
            progress.say("stopping the cluster")
        for forward in found.forwards:
            forward.process.end(patience_seconds=1)
        if found.node is not None:
            # All other processes of a pid namespace end before its first one is gone.
            found.node.end(patience_seconds=15)
    if cgroup.exists(checkout.cgroup):
        cgroup.remove(checkout.cgroup)
    delete_record(checkout)


def running(checkout: Checkout) -> Record:
    """Return the record of the running cluster; raises ScriptError if none runs."""
    found = read_record(checkout)
    if found is None or not found.alive or found.node is None:
        raise ScriptError("The cluster is not up.", fix="scripts/dev-cluster up")
    return found


def load_images(checkout: Checkout, archives: list[Path], progress: Progress) -> None:
    """Import docker-archives, for pods with `imagePullPolicy: Never` or `IfNotPresent`."""
    containerd = Containerd.of(node_pid(checkout))
    for archive in archives:
        containerd.load(archive, progress)


def execute(checkout: Checkout, command: list[str]) -> NoReturn:
    """Exec a command inside the cluster's network, with a kubeconfig that works there."""
    namespace = f"--net={network_namespace(checkout)}"
    os.environ["KUBECONFIG"] = str(checkout.pki / pki.ADMIN.file)
    os.execvp("nsenter", ["nsenter", namespace, "--", *command])  # noqa: S606 - no shell is wanted


def forward(checkout: Checkout, port: int, progress: Progress) -> str:
    """Make a loopback port of this machine reachable for pods; return its address for them."""
    found = running(checkout)
    address = f"{NODE_ADDRESS}:{port}"
    for old in found.forwards:
        if old.port == port and old.process.alive:
            progress.say("forwarded already")
            return address
    # The socket is opened inside and served outside: nsenter in, listen, and nsenter out.
    with Path("/proc/self/ns/net").open() as here:
        outside = fcntl.fcntl(here, fcntl.F_DUPFD, 10)  # The socket will be descriptor 3.
    process = start_detached(
        [
            *("nsenter", f"--net={network_namespace(checkout)}", "--"),
            *(sys.executable, "-P", "-m", "rollout_dev.dev_cluster.listen"),
            *(NODE_ADDRESS, str(port), "--"),
            *("nsenter", f"--net=/proc/self/fd/{outside}", "--"),
            *(str(binaries.RUNTIME.folder / "relay"), f"127.0.0.1:{port}"),
        ],
        checkout.logs / f"forward-{port}.log",
        keep=(outside,),
        env={**os.environ, "PYTHONPATH": components.python_path()},
    )
    os.close(outside)
    kept = tuple(old for old in found.forwards if old.port != port)
    dataclasses.replace(found, forwards=(*kept, Forward(port, process))).write(checkout)
    if process.wait_gone(0.5):
        raise ScriptError(
            f"Port {port} cannot be forwarded.", why=tail(checkout.logs / f"forward-{port}.log")
        )
    return address


def network_namespace(checkout: Checkout) -> str:
    """Return the path of the cluster's network namespace, for `nsenter --net=`."""
    return f"/proc/{node_pid(checkout)}/ns/net"


def node_pid(checkout: Checkout) -> int:
    """Return the pid, on this machine, of the cluster's first process."""
    node = running(checkout).node
    return node.pid if node is not None else 0


def component_pids(checkout: Checkout) -> dict[str, int | None]:
    """Return each component's pid on this machine; `None` if it does not run."""
    names = [c.name for c in components.foundation(checkout, listener=0)]
    names += [c.name for c in components.clients(checkout)]
    found = read_record(checkout)
    if found is None or found.node is None or not found.alive:
        return dict.fromkeys(names)
    try:
        inside = json.loads((checkout.state / "components.json").read_text())
    except (OSError, ValueError):
        inside = {}
    by_inner = {inner_pid(pid): pid for pid in children(found.node.pid)}
    return {name: by_inner.get(inside.get(name, 0)) for name in names}


def _check_machine(checkout: Checkout) -> None:
    if os.geteuid() != 0:
        raise ScriptError(
            "The native cluster needs root.",
            why="it makes namespaces, mounts and cgroups.",
            fix="sudo scripts/dev-cluster up   (or start Docker: the cluster then runs in kind)",
            exit_code=PREREQUISITE,
        )
    if checkout.root.is_relative_to("/run"):
        raise ScriptError(
            f"The native cluster cannot run from {checkout.root}.",
            why="inside the cluster, /run is another folder.",
            fix="Move the checkout elsewhere.",
        )
    _drop_foreign_state(checkout)


def _drop_foreign_state(checkout: Checkout) -> None:
    """Delete the state of a copied checkout: its certificates and database are the original's."""
    mark = checkout.state / "checkout"
    if checkout.state.exists() and mark.exists() and mark.read_text() != str(checkout.root):
        shutil.rmtree(checkout.state)
    checkout.state.mkdir(exist_ok=True)
    mark.write_text(str(checkout.root))


def _fresh_logs(checkout: Checkout) -> None:
    """Create an empty folder for this run's logs; keep the last run's, remove older ones."""
    previous = checkout.state / "log.previous"
    if checkout.logs.exists():
        shutil.rmtree(previous, ignore_errors=True)
        checkout.logs.rename(previous)
    checkout.logs.mkdir()


def _listen(preferred: int) -> socket.socket:
    """Listen on loopback: on the preferred port, or the next free one."""
    for port in range(preferred, preferred + 200):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            listener.close()
            continue
        listener.listen(512)
        return listener
    raise ScriptError(f"No free loopback port from {preferred} to {preferred + 199}.")


def _start_node(checkout: Checkout, listener: socket.socket) -> Process:
    log = checkout.logs / "node.log"
    wrapper = start_detached(
        [
            *("unshare", "--net", "--mount", "--pid", "--ipc", "--uts"),
            # slave: later mounts of the machine appear inside, but not the other way round.
            *("--propagation", "slave", "--fork", "--kill-child", "--mount-proc", "--"),
            *(sys.executable, "-P", "-m", "rollout_dev.dev_cluster.node", str(listener.fileno())),
        ],
        log,
        keep=(listener.fileno(),),
        env={**os.environ, "PYTHONPATH": components.python_path()},
    )
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and wrapper.alive:
        for pid in children(wrapper.pid):
            if (node := Process.of(pid)) is not None:
                return node
        time.sleep(0.02)
    raise ScriptError("The cluster's first process did not start.", why=tail(log))


def _await_boot(checkout: Checkout, node: Process, progress: Progress) -> None:
    seen = 0
    deadline = time.monotonic() + _BOOT_SECONDS
    while time.monotonic() < deadline:
        lines = _boot_lines(checkout)
        for line in lines[seen:]:
            if line == UP:
                return
            if line.startswith(FAILED):
                name = line.removeprefix(FAILED)
                raise ScriptError(
                    f"{name} does not stay up.",
                    why=tail(checkout.logs / f"{name}.log"),
                    fix="scripts/dev-cluster down --wipe, then up: starts with an empty cluster.",
                )
            progress.say(line)
        seen = len(lines)
        if not node.alive:
            break
        time.sleep(0.05)
    node.end(patience_seconds=5)
    raise ScriptError(
        "The cluster did not come up.",
        why=tail(checkout.logs / "node.log"),
        fix=f"See {checkout.logs}; `scripts/dev-cluster down --wipe` deletes the cluster's state.",
    )


def _boot_lines(checkout: Checkout) -> list[str]:
    try:
        return (checkout.state / "boot").read_text().splitlines()
    except OSError:
        return []
