"""Images of one static program over a base; shared steps of all images over a base."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rollout_dev.dev_cluster import binaries
from rollout_dev.dev_cluster.checkout import cache_folder
from rollout_dev.dev_cluster.errors import ScriptError
from rollout_dev.dev_cluster.progress import Progress
from rollout_dev.images import rootfs
from rollout_dev.images.archive import (
    Image,
    ImageConfig,
    Layer,
    layer_from_trees,
    write_tagged_archive,
)
from rollout_dev.images.recipe import Application

_PROGRAMS = {"versitygw": binaries.VERSITYGW}
_KEPT = 2
"""Archives of one image to keep in the cache: the newest, and the one before it."""


def image(one: Application, program: str, progress: Progress) -> Image:
    """Build the layers of an image with this program in `/usr/local/bin`."""
    group = _PROGRAMS.get(program)
    if group is None:
        raise ScriptError(f"{one.name}: no such program: {program}", fix=", ".join(_PROGRAMS))
    folder = binaries.ensure(group, progress)
    layer = rootfs.cached(
        f"{one.name}-{program}", group.digest, build=lambda out: _layer(folder / program, out)
    )
    return assembled(one, [rootfs.layer(one.base, progress), layer])


def assembled(one: Application, layers: Sequence[Layer]) -> Image:
    """Return the image of these layers, with a tag of its content."""
    config = ImageConfig(
        env=one.environment,
        workdir=one.workdir,
        cmd=one.cmd,
        user=one.user,
        labels=one.labels,
    )
    content = repr((config, [layer.diff_id for layer in layers]))
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return Image((f"{one.image}:{digest}", f"{one.image}:local"), tuple(layers), config)


def archive(name: str, made: Image, progress: Progress) -> Path:
    """Write the docker-archive of an image, unless the cache has it; remove older ones."""
    digest = made.names[0].rpartition(":")[2]
    path = cache_folder() / "images" / f"{name}-{digest}.tar"
    if path.exists():
        progress.say(f"{made.names[0]}: built already")
    else:
        write_tagged_archive(made.names, made.layers, made.config, path)
        progress.say(f"{made.names[0]}: {path.stat().st_size >> 20} MiB")
    remove_older(path, f"{name}-{'?' * len(digest)}.tar")
    return path


def remove_older(current: Path, pattern: str) -> None:
    """Remove the files that `current` replaces: each change of the code makes one."""
    current.touch()  # it may be old, but it is the newest in use
    found = sorted(current.parent.glob(pattern), key=lambda path: path.stat().st_mtime)
    for path in found[:-_KEPT]:
        path.unlink(missing_ok=True)


def _layer(program: Path, out: Path) -> Layer:
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        root = Path(scratch)
        shutil.copyfile(program, root / program.name)
        (root / program.name).chmod(0o755)
        # Any user may run the server, with a mounted volume for its data or without one.
        return layer_from_trees({"/usr/local/bin": root}, out)
