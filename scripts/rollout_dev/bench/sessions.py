"""A thousand sandboxes from one process: time to open them, memory, CPU, latency.

As many real pods as the nodes hold (at most `--pods`), and for the rest a server in its own process
that serves exec streams over TLS and responds at once. Every session then runs one command a
second.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from rollout_dev.bench.many_streams import ManyStreams, open_many_streams
from rollout_dev.exec_clients import ours
from rollout_dev.exec_clients.base import leave, run_or_leave
from rollout_dev.exec_clients.capacity import room_for
from rollout_dev.exec_clients.site import open_site
from rollout_dev.report import Report, Row, parser, silence_logs
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.session.session import Session

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
    """Of one core."""
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


def main(arguments: Sequence[str]) -> NoReturn:
    """Measure and print; exit with 0 if every session opened and every command succeeded."""
    given = _options(arguments)
    silence_logs()
    found = run_or_leave(_measure(given))
    report = _report(found)
    leave(report.printed(as_json=given.json))


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser(
        "scripts/bench sessions", __doc__, quick="a shorter load on fewer pods", kubeconfig=True
    )
    options.add_argument("--sessions", type=int, default=1000, help="in total")
    options.add_argument("--pods", type=int, default=64, help="real ones, at most")
    options.add_argument("--image", default=IMAGE, help="of the pods")
    return options.parse_args(arguments)


async def _measure(given: argparse.Namespace) -> Measured:
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(
            open_site(given.kubeconfig, prefix="bench-sessions-")
        )
        note = await ours.without_policy_if_forbidden(site)
        provider = await stack.enter_async_context(ours.provider(site))
        room = await room_for(
            site.client, most=min(8 if given.quick else given.pods, given.sessions)
        )
        streams = await stack.enter_async_context(open_many_streams(site.folder))
        gc.collect()
        before, began = _rss(), time.monotonic()
        # The pods first: their start-up time is the cluster's, not the sessions'.
        pods = await ours.start_many(provider, given.image, room)
        _say(f"{room} pods after {time.monotonic() - began:.1f} s")
        began = time.monotonic()
        sessions = await streams.open(given.sessions - room)
        open_s = time.monotonic() - began
        _say(f"{len(sessions)} streams after {open_s:.1f} s")
        gc.collect()
        opened = _rss()
        load = await _load(pods, sessions, streams, seconds=5 if given.quick else 30)
    return Measured(
        sessions=len(pods) + len(sessions),
        pods=len(pods),
        open_s=open_s,
        rss_before=before,
        rss_open=opened,
        load=load,
        notes=(note,) if note else (),
    )


async def _load(
    pods: Sequence[Sandbox], sessions: Sequence[Session], streams: ManyStreams, *, seconds: int
) -> Load:
    """Run one command a second in each, each starting at a random moment."""
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


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
