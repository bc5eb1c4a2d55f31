"""Guarded streams pass on each line when it is written, also where Python's own buffers are off."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SAYS_AND_DIES = """
import os, sys
from swe_rollout.cli.main import guard_streams
guard_streams()
print("said", file=sys.stderr)
os._exit(0)
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_message_does_not_wait_for_the_end(unbuffered: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SAYS_AND_DIES],
        capture_output=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        check=True,
    )
    assert done.stderr == b"said\n"
