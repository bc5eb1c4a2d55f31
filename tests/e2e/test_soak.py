"""The soak, in short: what an engine leaks on purpose is found, and nothing is left behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="needs bubblewrap (apt-get install bubblewrap)"
)


@pytest.mark.slow
def test_a_planted_leak_is_found_and_nothing_else_is_left() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "rollout_dev.conformance", "soak", "--json"),
            *("--minutes", "5", "--episodes", "100", "--turns", "2", "--every", "0.05"),
            *("--leak", "descriptors"),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    report = json.loads(done.stdout.splitlines()[-1])
    slopes = {row["subject"]: row for row in report["rows"]}

    assert done.returncode == 1
    assert not report["ok"]
    assert any(note.startswith("descriptors grows") for note in report["notes"]), report
    assert slopes["descriptors"]["slope"] == pytest.approx(1, abs=0.5)
    assert not any("left" in note for note in report["notes"]), report
    assert {"rss_kib", "threads", "tasks", "processes", "mounts", "store_objects"} <= slopes.keys()
