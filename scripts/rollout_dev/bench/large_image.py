"""A local image with a large working tree of random files, for benchmarks of sandboxes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from swe_rollout.sandbox.local.images import LocalImage, Mount, image_folder, save_image

LARGE_IMAGE: Final = "bench:1"
_IN_A_FOLDER: Final = 100


def make_large_image(images: Path, *, folders: int, file_bytes: int) -> Path:
    """Make the image, with 100 files in each folder at `/testbed`; return its tree."""
    folder = image_folder(LARGE_IMAGE, images)
    write_large_tree(folder / "tree", folders=folders, file_bytes=file_bytes)
    save_image(LocalImage(LARGE_IMAGE, (Mount("tree", "/testbed", writable=True),), {}), folder)
    return folder / "tree"


def write_large_tree(tree: Path, *, folders: int, file_bytes: int) -> None:
    """Write 100 files of random bytes into each folder of a tree."""
    for number in range(folders):
        part = tree / f"part{number}"
        part.mkdir(parents=True)
        for name in range(_IN_A_FOLDER):
            (part / f"file{name}.py").write_bytes(os.urandom(file_bytes))
