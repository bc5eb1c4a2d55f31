"""Build images of release pairs for a cluster: each pair's folders over the base file system."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from rollout_dev.dev_cluster.checkout import cache_folder
from rollout_dev.dev_cluster.errors import Progress
from rollout_dev.images.archive import ImageConfig, Layer, layer_from_trees, write_archive
from rollout_dev.images.recipe import Recipe
from swe_rollout.datasets import release_pairs
from swe_rollout.sandbox.local.images import image_folder, load_image


def archives(base: Recipe, base_layer: Layer, progress: Progress) -> list[Path]:
    """Build the docker-archive of every release pair, unless the cache has it."""
    instances = asyncio.run(release_pairs.load(on_progress=progress.say))
    return [archive(i.image, i.workdir, base, base_layer, progress) for i in instances]


def archive(name: str, workdir: str, base: Recipe, base_layer: Layer, progress: Progress) -> Path:
    """Build the docker-archive of a local image over the base, unless the cache has it."""
    path = cache_folder() / "images" / f"{image_folder(name).name}-{base.digest}.tar"
    if path.exists():
        progress.say(f"{name}: built already")
        return path
    image, folder = load_image(name)
    config = ImageConfig(env=tuple(image.env.items()), workdir=workdir, cmd=base.cmd)
    trees = {mount.target: folder / mount.source for mount in image.mounts}
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        layer = layer_from_trees(trees, Path(scratch) / "layer.tar")
        write_archive(name, [base_layer, layer], config, path)
    progress.say(f"{name}: {path.stat().st_size >> 20} MiB")
    return path
