"""Build the images of this repository as docker-archives in the user's cache."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import Progress, ScriptError
from rollout_dev.dev_cluster.kind import load_images
from rollout_dev.images import program, recipe, release_pairs, rootfs
from rollout_dev.images.archive import Image, ImageConfig, write_layout
from rollout_dev.images.recipe import Application, Program, Python, Recipe

RELEASE_PAIRS = "release-pairs"


def main() -> int:
    """Build the chosen images; print the path of each archive on stdout."""
    parser = argparse.ArgumentParser(prog="scripts/build-images", description=__doc__)
    known = [*recipe.names(), RELEASE_PAIRS]
    parser.add_argument("name", nargs="*", help=f"{', '.join(known)}; all of them by default")
    parser.add_argument("--load", action="store_true", help="load them into the dev cluster")
    parser.add_argument("--layer", action="store_true", help="print the base layers' tars instead")
    parser.add_argument(
        "--oci",
        type=Path,
        metavar="DIR",
        help="write OCI layouts to DIR/NAME and print NAME@DIGEST of each, as a registry has it",
    )
    arguments = parser.parse_args()
    progress = Progress()
    try:
        chosen = list(dict.fromkeys(arguments.name or known))
        recipes = [recipe.read(name) for name in chosen if name != RELEASE_PAIRS]
        if arguments.oci is not None:
            _write_layouts(recipes, arguments.oci, progress)
            return 0
        archives = [program.archive(one.name, _image(one, progress), progress) for one in recipes]
        if RELEASE_PAIRS in chosen:
            base = recipe.base_recipe("base")
            layer = rootfs.layer(base, progress)
            archives += release_pairs.archives(base, layer, progress)
        bases = [one for one in recipes if isinstance(one, Recipe)]
        layers = [rootfs.layer(one, progress).path for one in bases] if arguments.layer else []
        print("\n".join(map(str, layers if arguments.layer else archives)))
        if arguments.load:
            load_images(Checkout.here(), archives, progress)
    except ScriptError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _write_layouts(recipes: list[Recipe | Application], folder: Path, progress: Progress) -> None:
    for one in recipes:
        digest = write_layout(_image(one, progress), folder / one.name)
        print(f"{one.image}@{digest}")


def _image(one: Recipe | Application, progress: Progress) -> Image:
    """Return the image's layers, built unless cached, and its configuration."""
    match one:
        case Recipe():
            config = ImageConfig(workdir=one.workdir, cmd=one.cmd)
            return Image(one.tags, (rootfs.layer(one, progress),), config)
        case Application(source=Program(name)):
            return program.image(one, name, progress)
        case Application(source=Python() as source):
            return program.python_image(one, source, progress)
        case _:
            raise ScriptError(f"{one.name}: nothing builds this kind of image.")


if __name__ == "__main__":
    sys.exit(main())
