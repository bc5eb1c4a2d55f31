"""Time from the request for a local sandbox over a large tree to its first command.

The tree is 300 MB in 12,000 files. Subjects take turns: ours, in namespaces with an overlay; ours
as a plain directory, which copies; and two floors, the namespaces alone without any tree, and
`cp -a` of the tree, with reflinks where the file system has them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Final

from rollout_dev.bench.common import LARGE_IMAGE, Times, make_large_image, rounds
from rollout_dev.report import Report, Row, program
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId

OVERLAY: Final = "swe-rollout, overlay in namespaces"
PLAIN: Final = "swe-rollout, plain directory"
BARE: Final = "bwrap true, no tree"
COPY: Final = "cp -a --reflink=auto"
GOAL_MS: Final = 200.0
_FOLDERS: Final = 120
_FILE_BYTES: Final = 25_000


@program(quick="fewer rounds")
def main(given: Namespace) -> Report:
    """Make the tree, and measure."""
    with tempfile.TemporaryDirectory(prefix="bench-local-") as home:
        os.environ["XDG_CACHE_HOME"] = home
        images = Path(home, "images")
        tree = make_large_image(images, folders=_FOLDERS, file_bytes=_FILE_BYTES)
        times = asyncio.run(_measure(images, tree, Path(home), 3 if given.quick else 10))
    return _report(times)


async def _measure(images: Path, tree: Path, home: Path, count: int) -> Times:
    times = Times()
    providers = {PLAIN: LocalProvider(LocalSandbox(images=str(images), isolation="none"))}
    if not bubblewrap.refusal():
        spec = LocalSandbox(images=str(images), isolation="bubblewrap")
        providers[OVERLAY] = LocalProvider(spec)
    for number in rounds(count):
        for subject, provider in providers.items():
            times.add(subject, await _start(provider, number))
        if OVERLAY in providers:
            bare = ("bwrap", "--ro-bind", "/", "/", "--unshare-all", "--dev", "/dev", "true")
            times.add(BARE, await asyncio.to_thread(_timed, bare))
        copied = home / "copied"
        copy = ("cp", "-a", "--reflink=auto", str(tree), str(copied))
        times.add(COPY, await asyncio.to_thread(_timed, copy))
        shutil.rmtree(copied)
    for provider in providers.values():
        await provider.aclose()
    return times


async def _start(provider: LocalProvider, number: int) -> float:
    wanted = SandboxRequest(EpisodeId("bench", "one", number), Role.AGENT, LARGE_IMAGE, "/testbed")
    began = time.monotonic()
    sandbox = await provider.start(wanted)
    result = await sandbox.exec("echo x >>part0/file0.py")
    took_s = time.monotonic() - began
    if not result.ok:
        raise RuntimeError(f"the sandbox does not work: {result.stderr!r}")
    await sandbox.close()
    return took_s


def _timed(command: tuple[str, ...]) -> float:
    began = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - began


def _report(times: Times) -> Report:
    if OVERLAY not in times.by_subject:
        missing = Row(OVERLAY, skipped=bubblewrap.refusal())
        return Report("local_start", (*times.rows(), missing), ok=False)
    return Report(
        "local_start",
        times.rows(),
        ok=1e3 * times.p50_s(OVERLAY) < GOAL_MS,
        ratios={
            "ours_to_bare": times.ratio(OVERLAY, BARE),
            "ours_to_copy": times.ratio(OVERLAY, COPY),
        },
        notes=(f"goal: a tree of 300 MB within {GOAL_MS:g} ms, including the first command",),
    )
