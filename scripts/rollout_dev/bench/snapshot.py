"""Time to take and to restore a sandbox's delta: a tree of 300 MB in 20,000 files, a delta of 1 MB.

Subjects take turns in one sandbox in namespaces. Ours finds every change, deletions and edits that
keep size and mtime included; the floors, `find -newer` and `tar --newer` as commands in the same
sandbox, find neither. A rebuild is a fresh sandbox, the delta, and a first command; its floor lacks
the delta. A fork starts eight at once.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rollout_dev.bench.common import LARGE_IMAGE, Times, make_large_image, rounds
from rollout_dev.report import Report, Row, program
from swe_rollout.sandbox.base import Role, SandboxDelta, SandboxRequest
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.sandbox.session.session import Session
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId

CHANGES: Final = "changes, 1 MB differs"
NOTHING: Final = "changes, nothing differs"
HAND_OUT: Final = "start + first command, with snapshots"
START: Final = "start + first command"
REBUILD: Final = "start + apply + first command"
FORK: Final = "start + apply + first command, of eight"
FIND: Final = "find -newer"
TAR: Final = "tar --newer, 1 MB differs"
CHANGES_TO_FIND: Final = 1.25
"""A separate walk is the least that finds a change: slow machines slow down both."""
REBUILD_MS: Final = 3000.0
_FOLDERS: Final = 200
_CHILDREN: Final = 8
_EDIT: Final = (
    "touch /tmp/mark; sleep 0.02; n=0; while [ $n -lt 20 ]; do "
    "head -c 50000 /dev/urandom >part$n/file$n.py; n=$((n + 1)); done"
)


@dataclass(slots=True)
class _Samples:
    """Times, and facts about the delta and the supervisor."""

    times: Times = field(default_factory=Times)
    delta_bytes: int = 0
    memory_kb: dict[str, int] = field(default_factory=dict)


@program(quick="fewer rounds")
def main(given: Namespace) -> Report:
    """Make the tree, and measure."""
    if refusal := bubblewrap.refusal():
        return Report("snapshot", (Row(CHANGES, skipped=refusal),), ok=False)
    with tempfile.TemporaryDirectory(prefix="bench-snapshot-") as home:
        os.environ["XDG_CACHE_HOME"] = home
        images = Path(home, "images")
        make_large_image(images, folders=_FOLDERS)
        return _report(asyncio.run(_measure(images, 4 if given.quick else 15)))


async def _measure(images: Path, count: int) -> _Samples:
    provider = LocalProvider(LocalSandbox(images=str(images), isolation="bubblewrap"))
    samples = _Samples()
    await (await _started(provider, snapshots=False)).close()  # This fills the machine's caches.
    source = await _started(provider)
    for _ in rounds(count):
        await _round(provider, source, samples)
    await provider.aclose()
    return samples


async def _round(provider: LocalProvider, source: Session, samples: _Samples) -> None:
    times = samples.times
    await _run(source, _EDIT)
    for subject, command in (
        (FIND, "find /testbed /tmp /root /var/tmp -newer /tmp/mark >/dev/null"),
        (TAR, "tar -C /testbed --newer=/tmp/mark -cf - . >/dev/null"),
    ):
        with times.timed(subject):
            await _run(source, command)
    with times.timed(CHANGES):
        delta = await source.changes()
    samples.delta_bytes = len(delta.data)
    with times.timed(NOTHING):
        await source.changes()
    for line in (await _run(source, "grep ^Rss /proc/1/status")).splitlines():
        name, value, _ = line.split()
        samples.memory_kb[name.rstrip(":")] = int(value)
    for subject, snapshots in ((START, False), (HAND_OUT, True)):
        with times.timed(subject):
            sandbox = await _started(provider, snapshots=snapshots)
        await sandbox.close()
    await (await _rebuilt(provider, delta, times, REBUILD, time.monotonic())).close()
    began = time.monotonic()
    forks = (_rebuilt(provider, delta, times, FORK, began) for _ in range(_CHILDREN))
    await asyncio.gather(*(child.close() for child in await asyncio.gather(*forks)))


async def _started(provider: LocalProvider, *, snapshots: bool = True) -> Session:
    sandbox = await _handed_out(provider, snapshots=snapshots)
    await _run(sandbox, "true")
    return sandbox


async def _handed_out(provider: LocalProvider, *, snapshots: bool) -> Session:
    episode = EpisodeId("bench", "one", 0)
    wanted = SandboxRequest(episode, Role.AGENT, LARGE_IMAGE, "/testbed", snapshots=snapshots)
    return await provider.start(wanted)


async def _rebuilt(
    provider: LocalProvider, delta: SandboxDelta, times: Times, subject: str, began: float
) -> Session:
    sandbox = await _handed_out(provider, snapshots=False)
    await sandbox.apply(delta)
    await _run(sandbox, "true")
    times.add(subject, time.monotonic() - began)
    return sandbox


async def _run(sandbox: Session, command: str) -> str:
    result = await sandbox.exec(command)
    if not result.ok:
        raise RuntimeError(f"the sandbox does not work: {result.stderr!r}")
    return result.stdout.decode()


def _report(samples: _Samples) -> Report:
    times = samples.times
    changes = times.p50_s(CHANGES) < CHANGES_TO_FIND * times.p50_s(FIND)
    memory = ", ".join(f"{name} {kb} kB" for name, kb in samples.memory_kb.items())
    return Report(
        "snapshot",
        times.rows(),
        ok=changes and 1e3 * times.p50_s(REBUILD) < REBUILD_MS,
        ratios={
            "changes_to_find": times.ratio(CHANGES, FIND),
            "changes_to_tar": times.ratio(CHANGES, TAR),
            "rebuild_to_start": times.ratio(REBUILD, START),
        },
        notes=(
            f"goals: changes in {CHANGES_TO_FIND:g} times find, a rebuild in {REBUILD_MS:g} ms",
            f"a delta of 1 MB of random bytes is {samples.delta_bytes} bytes",
            f"memory of the supervisor after it: {memory}",
        ),
    )
