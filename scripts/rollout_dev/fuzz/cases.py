"""Kept inputs: what once broke a rule. `tests/unit/scripts/fuzz` runs them again."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from rollout_dev.fuzz.campaign import Finding

FOLDER: Final = Path(__file__).parents[3] / "tests" / "fuzz_cases"
MOST_BYTES: Final = 1 << 16
"""Of a kept input; larger ones are for a test of their own, which makes them."""


def cases() -> list[tuple[str, Path]]:
    """Return the surface and the file of each kept input."""
    return [(path.parent.name, path) for path in sorted(FOLDER.glob("*/*.bin"))]


def keep(finding: Finding) -> Path | None:
    """Write the input of a finding; none where it is too large to be kept."""
    if len(finding.data) > MOST_BYTES:
        return None
    words = re.sub(r"[^a-z0-9]+", "-", finding.signature.lower()).strip("-")[:60]
    digest = hashlib.sha256(finding.data).hexdigest()[:8]
    path = FOLDER / finding.surface / f"{words}-{digest}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(finding.data)
    return path
