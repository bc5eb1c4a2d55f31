"""A thousand sandboxes from one process: time to open them, memory, CPU, latency.

As many real pods as the nodes hold (at most `--pods`), and for the rest a server in its own process
that serves exec streams over TLS and responds at once. Every session then runs one command a
second.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rollout_dev.exec_clients import ours
from rollout_dev.exec_clients.base import add_kubeconfig, open_site, room_for
from rollout_dev.report import Report, Row, option, program
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.exec import ExecTarget, open_exec
from swe_rollout.sandbox.base import Sandbox
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
    """Start a server in its own process, with a new certificate."""
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


IMAGE = "swe-rollout/sandbox-base:local"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_P99 = 0.99
PODS = "real pods"
STREAMS = "streams of a test server"


@dataclass(frozen=True, slots=True)
class Load:
    """The cost of one command a second in every session."""

    latencies_s: dict[str, list[float]]
    failed: int
    cpu_share: float
    """CPU time as a share of one core."""
    server_cpu_share: float


@dataclass(frozen=True, slots=True)
class Measured:
    """All figures of a run."""

    sessions: int
    pods: int
    open_s: float
    rss_before: int
    rss_open: int
    load: Load
    notes: tuple[str, ...]


@program(
    option("--sessions", type=int, default=1000, help="in total"),
    option("--pods", type=int, default=64, help="real ones, at most"),
    option("--image", default=IMAGE, help="of the pods"),
    quick="a shorter load on fewer pods",
    kubeconfig=True,
)
async def main(given: Namespace) -> Report:
    """Open the sessions and measure; not one command may fail."""
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(
            open_site(given.kubeconfig, prefix="bench-sessions-", images=(given.image,))
        )
        note = await ours.without_policy_if_forbidden(site)
        provider = await stack.enter_async_context(ours.provider(site))
        room = await room_for(
            site.client, most=min(8 if given.quick else given.pods, given.sessions)
        )
        streams = await stack.enter_async_context(open_many_streams(site.folder))
        gc.collect()
        before, began = _rss(), time.monotonic()
        # Pods first: their start-up time is the cluster's, not the sessions'.
        pods = await ours.start_many(provider, given.image, room)
        sys.stderr.write(f"{room} pods after {time.monotonic() - began:.1f} s\n")
        began = time.monotonic()
        sessions = await streams.open(given.sessions - room)
        open_s = time.monotonic() - began
        sys.stderr.write(f"{len(sessions)} streams after {open_s:.1f} s\n")
        gc.collect()
        opened = _rss()
        load = await _load(pods, sessions, streams, seconds=5 if given.quick else 30)
    found = Measured(
        sessions=len(pods) + len(sessions),
        pods=len(pods),
        open_s=open_s,
        rss_before=before,
        rss_open=opened,
        load=load,
        notes=(note,) if note else (),
    )
    return _report(found)


async def _load(
    pods: Sequence[Sandbox], sessions: Sequence[Session], streams: ManyStreams, *, seconds: int
) -> Load:
    """Run one command a second in each session, starting at random moments."""
    latencies: dict[str, list[float]] = {PODS: [], STREAMS: []}
    began, cpu, server_cpu = time.monotonic(), time.process_time(), streams.cpu_s()

    async def keep_asking(sandbox: Sandbox | Session, kind: str) -> int:
        failed = 0
        first = began + random.random()  # noqa: S311 - spreads load
        for second in range(seconds):
            await asyncio.sleep(max(0.0, first + second - time.monotonic()))
            started = time.monotonic()
            failed += not (await sandbox.exec(["true"])).ok
            latencies[kind].append(time.monotonic() - started)
        return failed

    failures = await asyncio.gather(
        *(keep_asking(pod, PODS) for pod in pods),
        *(keep_asking(session, STREAMS) for session in sessions),
    )
    took_s = time.monotonic() - began
    return Load(
        latencies,
        sum(failures),
        cpu_share=(time.process_time() - cpu) / took_s,
        server_cpu_share=(streams.cpu_s() - server_cpu) / took_s,
    )


def _report(found: Measured) -> Report:
    grown = found.rss_open - found.rss_before
    rows = [
        Row(
            "swe-rollout",
            {
                "sessions": found.sessions,
                "open_s": round(found.open_s, 2),
                "rss_mib": round(found.rss_open / (1 << 20), 1),
                "rss_per_session_kib": round(grown / 1024 / found.sessions, 1),
                "cpu_share": round(found.load.cpu_share, 3),
                "failed": found.load.failed,
            },
        ),
        *(
            Row(
                kind,
                {
                    "commands": len(samples),
                    "p50_ms": round(statistics.median(samples) * 1e3, 2),
                    "p99_ms": round(sorted(samples)[int(_P99 * len(samples))] * 1e3, 2),
                },
            )
            for kind, samples in found.load.latencies_s.items()
            if samples
        ),
        Row("the test server's own process", {"cpu_share": round(found.load.server_cpu_share, 3)}),
    ]
    return Report(
        "sessions",
        tuple(rows),
        ok=found.load.failed == 0,
        notes=(
            f"{found.pods} real pods, started beforehand; the time to open is for the others",
            "CPU is a share of one core, at one command per second in every session",
            *found.notes,
        ),
    )


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
