"""A relay between the pods of the dev cluster and its API server, on the node.

Inside the block, connections from pods to the service `kubernetes` pass through it, but those of
the kubelet, the scheduler and kubectl do not. So a job can lose an API server that is alive.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rollout_dev.conformance.chaos.processes import NotInTimeError
from rollout_dev.dev_cluster import components, native
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.network import (
    API_PORT,
    API_SERVICE_ADDRESS,
    NODE_ADDRESS,
    POD_RANGE,
)
from rollout_dev.faults import relay

_PORT: Final = 16443
_TABLE: Final = "ip chaos"
# Before kube-proxy's own chain, because the first chain that translates a connection wins.
_REDIRECT: Final = f"""\
add table {_TABLE}
delete table {_TABLE}
table {_TABLE} {{
  chain prerouting {{
    type nat hook prerouting priority dstnat - 10;
    ip saddr {POD_RANGE} ip daddr {API_SERVICE_ADDRESS} tcp dport 443 dnat to {NODE_ADDRESS}:{_PORT}
  }}
}}
"""
_START_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ApiRelay:
    """The relay while it runs."""

    rules: Path

    def do(self, fault: relay.Fault) -> None:
        """Apply this fault from now on."""
        partial = self.rules.with_suffix(".new")
        partial.write_text(fault)
        partial.rename(self.rules)


@contextmanager
def opened() -> Iterator[ApiRelay]:
    """Start the relay and route new connections of pods through it; undo both after the block."""
    checkout = Checkout.here()
    inside = ("nsenter", f"--net={native.network_namespace(checkout)}", "--")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(*inside, "setpriv", "--pdeathsig", "KILL"),
            *(sys.executable, "-P", "-m", "rollout_dev.faults.relay"),
            *("--rules", folder, "--tls", str(checkout.pki)),
            f"{_PORT}:{NODE_ADDRESS}:{API_PORT}",
        ]
        environment = {**os.environ, "PYTHONPATH": components.python_path()}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
        try:
            _until_listens(process, inside)
            subprocess.run([*inside, "nft", "-f", "-"], input=_REDIRECT, text=True, check=True)
            yield ApiRelay(relay.rules_file(_PORT, Path(folder)))
        finally:
            delete = [*inside, "nft", "delete", "table", *_TABLE.split()]
            subprocess.run(delete, check=False, capture_output=True)
            process.send_signal(signal.SIGKILL)
            process.wait()


def _until_listens(process: subprocess.Popen[bytes], inside: tuple[str, ...]) -> None:
    script = f"import socket; socket.create_connection(('{NODE_ADDRESS}', {_PORT}), 1)"
    dial = [*inside, sys.executable, "-c", script]
    end = time.monotonic() + _START_S
    while subprocess.run(dial, check=False, capture_output=True).returncode:
        if process.poll() is not None or time.monotonic() > end:
            raise NotInTimeError("the relay in front of the API server did not start")
        time.sleep(0.1)
