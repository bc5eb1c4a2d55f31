"""Shared by benchmarks: rounds, times by subject, and a local image with a large tree."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import Progress
from rollout_dev.dev_cluster.kind import load_images
from rollout_dev.images import recipe, rootfs
from rollout_dev.images.archive import ImageConfig, layer_from_trees, write_archive
from rollout_dev.report import Row
from swe_rollout.sandbox.local.images import LocalImage, Mount, image_folder, save_image


@dataclass(slots=True)
class Times:
    """Samples by subject, in seconds."""

    by_subject: dict[str, list[float]] = field(default_factory=dict)

    def add(self, subject: str, *seconds: float) -> None:
        """Add samples."""
        self.by_subject.setdefault(subject, []).extend(seconds)

    @contextmanager
    def timed(self, subject: str) -> Iterator[None]:
        """Add the time that the block takes, unless it raises."""
        began = time.monotonic()
        yield
        self.add(subject, time.monotonic() - began)

    def p50_s(self, subject: str) -> float:
        """Return the median of a subject."""
        return statistics.median(self.by_subject[subject])

    def ratio(self, subject: str, to: str) -> float:
        """Return the ratio of two medians."""
        return round(self.p50_s(subject) / self.p50_s(to), 3)

    def rows(self, counted: str = "") -> tuple[Row, ...]:
        """Return a row for each subject, in milliseconds; `counted` names the number of samples."""
        return tuple(
            Row(
                subject,
                {
                    "p50_ms": round(statistics.median(samples) * 1e3, 1),
                    "max_ms": round(max(samples) * 1e3, 1),
                    **({counted: len(samples)} if counted else {}),
                },
            )
            for subject, samples in self.by_subject.items()
        )


def rounds(count: int, what: str = "round") -> Iterator[int]:
    """Yield the numbers of rounds, and say which one begins."""
    for number in range(count):
        sys.stderr.write(f"{what} {number + 1} of {count}\n")
        yield number


@contextmanager
def served(module: str, *arguments: str) -> Iterator[str]:
    """Run a module that prints its address and serves; yield the address."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None  # noqa: S101 - a pipe, see above
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def repeatedly(work: Callable[[], None], wait_s: Callable[[], float]) -> Iterator[None]:
    """Work in a thread while the block runs, after a wait each time."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(wait_s()):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


LARGE_IMAGE: Final = "bench:1"
FILE_BYTES: Final = 15_000
_IN_A_FOLDER: Final = 100


def make_large_image(images: Path, *, folders: int, file_bytes: int = FILE_BYTES) -> Path:
    """Make the image, with 100 files in each folder at `/testbed`; return its tree."""
    folder = image_folder(LARGE_IMAGE, images)
    write_large_tree(folder / "tree", folders=folders, file_bytes=file_bytes)
    save_image(LocalImage(LARGE_IMAGE, (Mount("tree", "/testbed", writable=True),), {}), folder)
    return folder / "tree"


def load_large_image(
    name: str, base: str, *, folders: int, change: Callable[[Path], None] = lambda _: None
) -> None:
    """Put a base image with such a tree at `/testbed`, after a change, onto the cluster's node."""
    progress, below = Progress(), recipe.base_recipe(base)
    progress.say("making the tree")
    with tempfile.TemporaryDirectory(prefix="bench-image-") as home:
        tree, archive = Path(home, "tree"), Path(home, "image.tar")
        write_large_tree(tree, folders=folders)
        change(tree)
        layer = layer_from_trees({"/testbed": tree}, Path(home, "tree.tar"))
        config = ImageConfig(workdir="/testbed", cmd=below.cmd)
        write_archive(name, [rootfs.layer(below, progress), layer], config, archive)
        load_images(Checkout.here(), [archive], progress)


def write_large_tree(tree: Path, *, folders: int, file_bytes: int = FILE_BYTES) -> None:
    """Write 100 files of random bytes into each folder of a tree."""
    for number in range(folders):
        part = tree / f"part{number}"
        part.mkdir(parents=True)
        for name in range(_IN_A_FOLDER):
            (part / f"file{name}.py").write_bytes(os.urandom(file_bytes))
