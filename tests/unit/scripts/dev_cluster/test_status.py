"""`scripts/dev-cluster status`, where no cluster is needed."""

import os
import signal
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[4] / "scripts" / "dev-cluster"


def test_a_reader_that_leaves_ends_it_without_a_trace() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [SCRIPT, "status"], stdout=write, stderr=subprocess.PIPE, check=False, timeout=60
        )
    finally:
        os.close(write)

    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")
