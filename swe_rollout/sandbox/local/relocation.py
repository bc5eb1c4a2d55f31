"""Correct the paths that a copied Python environment's own files name.

Scripts name their interpreter, editable installs the folder of the source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_LARGEST_BYTES: Final = 1 << 20
_NAMING: Final = ("*.pth", "*.egg-link", "__editable__*.py", "*.dist-info/direct_url.json")


def relocate(environment: Path, paths: Mapping[str, Path]) -> None:
    """Replace the keys of `paths` by their values in the files of an environment that name them.

    Does nothing in a folder without a `bin/python`; blocks.
    """
    if not os.path.lexists(environment / "bin" / "python"):
        return
    names = sorted((os.fsencode(name) for name in paths), key=len, reverse=True)
    pattern = re.compile(rb"(?<![\w./-])(" + b"|".join(map(re.escape, names)) + rb")(?![\w.-])")
    new = {os.fsencode(name): os.fsencode(path) for name, path in paths.items()}
    for file in _naming(environment):
        data = file.read_bytes()
        changed = pattern.sub(lambda match: new[match[1]], data)
        if changed != data:
            mode = file.stat().st_mode
            file.unlink()  # The content may be shared with the original.
            file.write_bytes(changed)
            file.chmod(mode)


def _naming(environment: Path) -> Iterator[Path]:
    found = [*(environment / "bin").iterdir()]
    for pattern in _NAMING:
        found += environment.glob(f"lib/python3*/site-packages/{pattern}")
    for file in found:
        if file.is_file() and not file.is_symlink() and file.stat().st_size <= _LARGEST_BYTES:
            yield file
