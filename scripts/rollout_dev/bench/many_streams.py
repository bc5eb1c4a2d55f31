"""Sessions to `exec_server`: the real transport, stream and session over TLS, no pods."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rollout_dev.exec_clients.site import add_kubeconfig
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.exec import ExecTarget, open_exec
from swe_rollout.sandbox.session.bootstrap import attach_command
from swe_rollout.sandbox.session.session import Session

_CONTEXT = "test-server"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class ManyStreams:
    """A running test server and its client."""

    client: ClusterClient
    pid: int
    _sessions: list[Session] = field(default_factory=list)

    async def open(self, count: int) -> list[Session]:
        """Open `count` sessions; the transport limits concurrent handshakes."""
        opened = await asyncio.gather(*(self._open(number) for number in range(count)))
        self._sessions += opened
        return opened

    async def _open(self, number: int) -> Session:
        target = ExecTarget("default", f"pod-{number}", "sandbox")
        stream = await open_exec(self.client, target, attach_command(first=True))
        return await Session.open(stream, workdir="/", timeout_s=60.0)

    def cpu_s(self) -> float:
        """Return the CPU seconds that the server has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    async def close(self) -> None:
        """Close all sessions."""
        await asyncio.gather(*(session.close() for session in self._sessions))


@asynccontextmanager
async def open_many_streams(folder: Path) -> AsyncIterator[ManyStreams]:
    """Start a server in a process of its own, with a certificate made for it."""
    certificate, key = folder / "server.crt", folder / "server.key"
    _make_certificate(certificate, key)
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "rollout_dev.bench.exec_server", str(certificate), str(key)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    if server.stdin is None or server.stdout is None:
        raise RuntimeError("the server's pipes are missing")
    port = int(await server.stdout.readline())
    _write_kubeconfig(folder / "test-server", certificate, port)
    client = await ClusterClient.connect(_CONTEXT)
    streams = ManyStreams(client, server.pid)
    try:
        yield streams
    finally:
        await streams.close()
        await client.aclose()
        server.stdin.close()
        await server.wait()


def _make_certificate(certificate: Path, key: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out"),
            str(certificate),
        ],
        check=True,
        capture_output=True,
    )


def _write_kubeconfig(path: Path, certificate: Path, port: int) -> None:
    named = {"name": _CONTEXT}
    server = f"https://127.0.0.1:{port}"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {**named, "cluster": {"server": server, "certificate-authority": str(certificate)}}
        ],
        "users": [{**named, "user": {}}],
        "contexts": [{**named, "context": {"cluster": _CONTEXT, "user": _CONTEXT}}],
    }
    path.write_text(json.dumps(content))
    add_kubeconfig(path)
