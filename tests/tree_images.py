"""Local images that hold one folder, at /testbed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from swe_rollout.sandbox.local.images import LocalImage, Mount, image_folder, save_image


def make_tree_image(
    name: str, root: Path | None = None, files: Mapping[str, str] | None = None
) -> Path:
    """Make an image with these files below `root`, or in the cache; return their folder."""
    folder = image_folder(name, root)
    tree = folder / "tree"
    tree.mkdir(parents=True)
    for path, text in (files or {}).items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    save_image(LocalImage(name, (Mount("tree", "/testbed", writable=True),), {}), folder)
    return tree
