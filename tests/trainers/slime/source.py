"""slime's source, which is on no package index: SLIME_SRC names a checkout.

git clone https://github.com/THUDM/slime && export SLIME_SRC=$PWD/slime
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def source() -> Path:
    """Return the checkout, which `scripts/trainers` has asked for."""
    named = os.environ.get("SLIME_SRC", "")
    if not (Path(named) / "slime" / "utils" / "types.py").is_file():
        pytest.fail(f"SLIME_SRC={named} is no checkout of slime")
    return Path(named).absolute()


def import_slime() -> tuple[Any, Any]:
    """Return `slime.rollout.sglang_rollout` and `slime.rollout.fully_async_rollout`."""
    root = str(source())
    if root not in sys.path:
        sys.path.insert(0, root)
    pytest.importorskip("torch", reason="needs scripts/trainers slime")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # slime asks the router's package for its version alone.
        router = sys.modules.setdefault("sglang_router", ModuleType("sglang_router"))
        router.__version__ = "0.2.3"  # type: ignore[attr-defined]
        from slime.rollout import (  # noqa: PLC0415 - from SLIME_SRC
            fully_async_rollout,
            sglang_rollout,
        )
    return sglang_rollout, fully_async_rollout
