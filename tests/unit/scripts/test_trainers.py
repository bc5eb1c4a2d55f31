"""`scripts/trainers test`: a trainer that no package index has, and no checkout of it."""

from __future__ import annotations

import os
import subprocess

from checkout import ROOT


def test_skips_a_trainer_that_no_index_has_and_says_how_to_get_it() -> None:
    """Nothing is installed for it, and nothing has failed."""
    environment = {name: text for name, text in os.environ.items() if name != "SLIME_SRC"}
    done = subprocess.run(
        [ROOT / "scripts" / "trainers", "test", "slime"],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert "skipped: slime is on no package index, and $SLIME_SRC names no checkout" in done.stderr
    assert "git clone https://github.com/THUDM/slime; SLIME_SRC=$PWD/slime" in done.stderr
    assert "failed" not in done.stderr
