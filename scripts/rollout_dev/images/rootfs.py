"""Build file systems as layers: a minimal Debian, or busybox alone."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from rollout_dev.dev_cluster import toolchain
from rollout_dev.dev_cluster.checkout import cache_folder
from rollout_dev.dev_cluster.errors import PREREQUISITE, Progress, ScriptError
from rollout_dev.images.archive import FILE_TIME, Layer, layer_from_trees
from rollout_dev.images.recipe import Busybox, Debian, Recipe

_EPOCH = "1700000000"
"""The time of mmdebstrap's files, so that builds are reproducible."""

# These are useless in a container and differ in every build: package lists, caches, logs.
_LEFT_OUT = ("dev/", "var/lib/apt/lists/", "var/cache/apt/", "var/log/", "var/cache/ldconfig/")
_OF_THIS_MACHINE = ("etc/hostname", "etc/resolv.conf")


def layer(recipe: Recipe, progress: Progress) -> Layer:
    """Build the base image's file system unless the cache has it."""
    return cached(
        recipe.name, recipe.digest, build=lambda out: _build(recipe.source, out, progress)
    )


def cached(name: str, digest: str, *, build: Callable[[Path], Layer]) -> Layer:
    """Return the layer from the cache, or let `build` create it at the path that it receives."""
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{digest}.layer.tar"
    with (folder / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Two checkouts build it only once.
        return Layer.of(path) if path.exists() else build(path)


def _build(source: Debian | Busybox, out: Path, progress: Progress) -> Layer:
    toolchain.ensure_packages(toolchain.IMAGES, progress)
    match source:
        case Debian():
            return _debian(source, out, progress)
        case Busybox():
            return _busybox(out)


def _debian(source: Debian, out: Path, progress: Progress) -> Layer:
    if os.geteuid() != 0:
        raise ScriptError(
            "Building a Debian file system needs root.",
            why="its files belong to root and other system users.",
            fix="sudo scripts/build-images   (or docker build sandbox_images/base)",
            exit_code=PREREQUISITE,
        )
    progress.say(f"mmdebstrap: Debian {source.suite} with {', '.join(source.packages)}")
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        raw = Path(scratch) / "raw.tar"
        done = subprocess.run(
            [
                *("mmdebstrap", "--quiet", "--variant=minbase", "--format=tar"),
                f"--include={','.join(source.packages)}",
                *(source.suite, str(raw)),
            ],
            check=False,
            stdout=sys.stderr,
            env={**os.environ, "SOURCE_DATE_EPOCH": _EPOCH},
        )
        if done.returncode != 0:
            raise ScriptError(
                "mmdebstrap failed.",
                why="its own message is above.",
                fix="Is a Debian mirror reachable (apt-get update)? Then run it again.",
            )
        clean = Path(scratch) / "clean.tar"
        _clean(raw, clean)
        clean.rename(out)
    return Layer.of(out)


def _clean(raw: Path, out: Path) -> None:
    """Copy the file system without devices and leftovers, giving every file the same time."""
    with tarfile.open(raw) as source, tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as target:
        for entry in source:
            name = entry.name.removeprefix("./")
            left_out = any(name.startswith(p) and name != p for p in _LEFT_OUT)
            if left_out or name in _OF_THIS_MACHINE or entry.ischr() or entry.isblk():
                continue
            entry.mtime = FILE_TIME
            entry.pax_headers = {}
            target.addfile(entry, source.extractfile(entry) if entry.isreg() else None)


def _busybox(out: Path) -> Layer:
    program = shutil.which("busybox", path=f"{os.environ.get('PATH', '')}:/bin:/usr/bin")
    if program is None:
        raise ScriptError("busybox is missing.", fix="apt-get install busybox-static")
    listing = subprocess.run([program, "--list"], check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        root = Path(scratch) / "root"
        for folder in ("bin", "etc", "tmp", "root", "proc", "sys", "dev", "usr", "var"):
            (root / folder).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        shutil.copyfile(program, root / "bin" / "busybox")
        (root / "bin" / "busybox").chmod(0o755)
        for applet in listing.stdout.split():
            if applet != "busybox":
                (root / "bin" / applet).symlink_to("busybox")
        (root / "usr" / "bin").symlink_to("../bin")
        (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (root / "etc" / "group").write_text("root:x:0:\n")
        return layer_from_trees({"/": root}, out)
