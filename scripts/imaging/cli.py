"""`scripts/build-images`: the sandbox images as docker-archives in the user's cache."""

from __future__ import annotations

import argparse
import fcntl
import sys
from typing import TYPE_CHECKING

from dev_cluster import cli as dev_cluster
from dev_cluster.checkout import Checkout, cache_folder
from dev_cluster.errors import ScriptError
from dev_cluster.progress import Progress
from imaging import recipe, rootfs
from swe_rollout.sandbox.image import ImageConfig, Layer, write_tagged_archive

RELEASE_PAIRS = "release-pairs"

if TYPE_CHECKING:
    from pathlib import Path

    from imaging.recipe import Recipe


def main() -> int:
    """Build what is asked for; print the path of each archive on stdout."""
    parser = argparse.ArgumentParser(prog="scripts/build-images", description=__doc__)
    known = [*recipe.names(), RELEASE_PAIRS]
    parser.add_argument("name", nargs="*", help=f"{', '.join(known)}; all of them by default")
    parser.add_argument("--load", action="store_true", help="load them into the dev cluster")
    parser.add_argument("--layer", action="store_true", help="print the base layers' tars instead")
    arguments = parser.parse_args()
    progress = Progress()
    try:
        chosen = list(dict.fromkeys(arguments.name or known))
        recipes = [recipe.read(name) for name in chosen if name != RELEASE_PAIRS]
        archives = [archive(one, progress) for one in recipes]
        if RELEASE_PAIRS in chosen:
            archives += _release_pairs(progress)
        printed = [layer(one, progress).path for one in recipes] if arguments.layer else archives
        print("\n".join(map(str, printed)))
        if arguments.load:
            dev_cluster.load_images(Checkout.here(), archives, progress)
    except ScriptError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _release_pairs(progress: Progress) -> list[Path]:
    try:
        from imaging import release_pairs  # noqa: PLC0415 - the rest needs no environment
    except ImportError as error:
        raise ScriptError(
            f"Images of release pairs need the package's environment: {error}.", fix="make setup"
        ) from error
    base = recipe.read("base")
    return release_pairs.archives(base, layer(base, progress), progress)


def layer(one: Recipe, progress: Progress) -> Layer:
    """The image's file system as a tar, built unless the cache has it."""
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{one.name}-{one.digest}.layer.tar"
    with (folder / f".{one.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two checkouts that need it build it once
        if path.exists():
            return Layer.of(path)
        return rootfs.build(one.source, path, progress)


def archive(one: Recipe, progress: Progress) -> Path:
    """The image's docker-archive, built unless the cache has it."""
    path = cache_folder() / "images" / f"{one.name}-{one.digest}.tar"
    if path.exists():
        progress.say(f"{one.tags[0]}: built already")
        return path
    config = ImageConfig(workdir=one.workdir, cmd=one.cmd)
    digest = write_tagged_archive(one.tags, [layer(one, progress)], config, path)
    progress.say(f"{one.tags[0]}: {path.stat().st_size >> 20} MiB, {digest[:19]}")
    return path
