"""Real samples from the repository and, if there are any, from next to the checkout."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[4]
OWN: Final = Path(__file__).parents[1] / "samples"
_SHARED: Final = ROOT.parent / "shared"
DATA: Final = Path(os.environ.get("SWE_ROLLOUT_DATA") or _SHARED / "data")
"""The folder of recorded rows and logs, which most machines do not have."""
SGLANG: Final = Path(os.environ.get("SWE_ROLLOUT_SGLANG_SAMPLES") or _SHARED / "sglang" / "samples")
"""The folder of recorded exchanges with SGLang, which most machines do not have."""
MOST_BYTES: Final = 1 << 17
"""Maximum size of a sample; longer ones are left out, or cut where possible."""


def files(folder: Path, pattern: str, *, most: int = 60) -> Iterator[bytes]:
    """Yield the contents of at most `most` files of a folder, if it exists."""
    found = (path.read_bytes() for path in sorted(folder.glob(pattern))[:most] if path.is_file())
    yield from (data for data in found if 0 < len(data) <= MOST_BYTES)


@cache
def scratch(name: str) -> Path:
    """Return a folder of this process, which every input must leave unchanged."""
    return Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
