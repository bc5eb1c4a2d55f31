"""Where the checkout is, and the data beside it that some tests read."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
DATA = Path(os.environ.get("SWE_ROLLOUT_DATA") or SHARED / "data")
"""Recorded datasets and logs; tests that need them skip where they are absent."""
SGLANG_SAMPLES = Path(os.environ.get("SWE_ROLLOUT_SGLANG_SAMPLES") or SHARED / "sglang" / "samples")
"""Recorded exchanges with a real server, where this machine has them."""
UNIT = ROOT / "tests" / "unit"
