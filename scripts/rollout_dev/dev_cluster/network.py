"""The cluster's network: a namespace of its own, with one bridge for the node's address.

It has no route out. Every checkout may use the same addresses, since no two clusters share a
namespace.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

NODE_NAME = "node0"
NODE_ADDRESS = "10.254.254.1"
API_PORT = 6443
POD_RANGE = "10.244.0.0/16"
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"

_LINK = "knode0"


def configure() -> None:
    """Configure this process's network namespace, which disappears with its last process."""
    for command in (
        "link set lo up",
        # A bridge without ports: a dummy device would be usual, but some kernels lack it.
        f"link add {_LINK} type bridge",
        f"addr add {NODE_ADDRESS}/24 dev {_LINK}",
        f"link set {_LINK} up",
        # The kubelet and the API server find their address through the default route.
        f"route add default dev {_LINK}",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
