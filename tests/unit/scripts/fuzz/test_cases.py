"""Inputs that once broke a rule break none any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollout_dev.fuzz import cases
from rollout_dev.fuzz.child import run_one
from rollout_dev.fuzz.surfaces import SURFACES, load

pytest.importorskip("mcp_types", reason="pip install 'swe-rollout[mcp]' to run these tests")
KEPT = cases.cases()


@pytest.mark.parametrize(
    ("name", "path"), KEPT, ids=[f"{name}: {path.stem}" for name, path in KEPT]
)
def test_a_kept_input_is_read_or_refused(name: str, path: Path) -> None:
    surface = load(name)
    assert isinstance(run_one(surface, path.read_bytes()), bool)


def test_kept_inputs_are_of_surfaces_that_exist_and_small() -> None:
    assert {name for name, _ in KEPT} <= SURFACES.keys()
    assert all(path.stat().st_size <= cases.MOST_BYTES for _, path in KEPT)
