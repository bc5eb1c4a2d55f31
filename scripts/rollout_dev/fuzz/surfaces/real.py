"""Real samples: those of the repository, and those beside the checkout where there are any."""

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
"""Recorded rows and logs; there are none on most machines."""
SGLANG: Final = Path(os.environ.get("SWE_ROLLOUT_SGLANG_SAMPLES") or _SHARED / "sglang" / "samples")
"""Recorded exchanges with SGLang, likewise."""
MOST_BYTES: Final = 1 << 17
"""Of a sample; longer ones are left out, or cut by those who can."""


def files(folder: Path, pattern: str, *, most: int = 60) -> Iterator[bytes]:
    """Yield the contents of files of a folder, if it is there: at most so many of them."""
    found = (path.read_bytes() for path in sorted(folder.glob(pattern))[:most] if path.is_file())
    yield from (data for data in found if 0 < len(data) <= MOST_BYTES)


@cache
def scratch(name: str) -> Path:
    """Return a folder of this process, whose content each input leaves as it was."""
    return Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
