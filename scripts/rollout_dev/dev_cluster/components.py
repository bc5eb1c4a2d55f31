"""The command line of every process of the cluster, and which ones wait for the API server.

The commands are in `components.yaml`, and the files that they read in `settings`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

import yaml

from rollout_dev.dev_cluster import network
from rollout_dev.dev_cluster.binaries import CONTAINERD, COREDNS, KUBE, RUNTIME
from rollout_dev.dev_cluster.checkout import SOURCES, Checkout

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
"""Inside the cluster's mount namespace, whose /run is its own."""
PAUSE_IMAGE = "dev-cluster.local/pause:1"
_SETTINGS: Final = SOURCES / "settings"
_COMMANDS: Final = SOURCES / "components.yaml"


def _filled(text: str, checkout: Checkout) -> str:
    """Replace the names in a command or in a file of settings."""
    return Template(text).substitute(
        state=checkout.state,
        pki=checkout.pki,
        logs=checkout.logs,
        cgroup=checkout.cgroup,
        socket=CONTAINERD_SOCKET,
        pause=PAUSE_IMAGE,
        node=network.NODE_ADDRESS,
        name=network.NODE_NAME,
        port=network.API_PORT,
        pods=network.POD_RANGE,
        services=network.SERVICE_RANGE,
        kube=KUBE.folder / "kube",
        containerd=CONTAINERD.folder,
        coredns=COREDNS.folder,
        runtime=RUNTIME.folder,
        python=sys.executable,
    )


def write_settings(checkout: Checkout) -> None:
    """Write all files to the state folder; components get their paths."""
    for file in (path for path in _SETTINGS.rglob("*") if path.is_file()):
        path = checkout.state / file.relative_to(_SETTINGS)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_filled(file.read_text(), checkout))


@dataclass(frozen=True, slots=True)
class Component:
    """A process that the cluster keeps running."""

    name: str
    command: tuple[str, ...]
    socket: int | None = None
    """A socket to inherit as descriptor 3."""


def foundation(checkout: Checkout, *, listener: int) -> tuple[Component, ...]:
    """Return the API server's processes, and containerd; the relay gets the listening socket."""
    return _components("foundation", checkout, {"relay": listener})


def clients(checkout: Checkout) -> tuple[Component, ...]:
    """Return the clients of the API server; started earlier, they would only log errors."""
    return _components("clients", checkout, {})


def _components(part: str, checkout: Checkout, sockets: dict[str, int]) -> tuple[Component, ...]:
    commands = yaml.safe_load(_COMMANDS.read_text())[part]
    return tuple(
        Component(name, tuple(_filled(word, checkout) for word in words), sockets.get(name))
        for name, words in commands.items()
    )


def search_path() -> str:
    """Return PATH for the components: containerd finds its shim, runc and CNI's iptables there."""
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return f"{CONTAINERD.folder}:{system}"


def python_path() -> str:
    """Return PYTHONPATH for the components in Python: this checkout, whichever is installed."""
    return str(Path(__file__).resolve().parents[2])
