"""A run that is watched: metrics over HTTP while it goes on, and JSON lines with the address."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from urllib.request import urlopen

import pytest

from e2e.command import COMMAND, ROOT, Job


def scrape(port: int) -> str:
    """Return the metrics; empty where nobody serves them."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            text: str = response.read().decode()
    except OSError:
        return ""
    return text


@pytest.mark.slow
def test_a_run_serves_metrics_and_logs_json(job_file: Callable[..., Job]) -> None:
    job = job_file(names=["sqlparse"], scenarios=["gold", "malformed"])
    command = [*COMMAND, "--log-format", "json", "-v", "run", str(job.path)]
    command += ["--metrics", "127.0.0.1:0", "--display", "none"]
    last, lines, port = "", list[str](), 0
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        stderr = process.stderr
        assert stderr is not None
        reading = threading.Thread(target=lambda: lines.extend(stderr))
        reading.start()
        while process.poll() is None:
            served = [json.loads(line) for line in lines if '"metrics_served"' in line]
            port = served[0]["port"] if served else 0
            last = (scrape(port) if port else "") or last
            time.sleep(0.02)
        reading.join()
    assert process.returncode == 0, lines
    assert "swe_rollout_episodes_planned 2.0" in last
    assert 'swe_rollout_sandbox_start_seconds_count{role="agent",start="cold"} 2.0' in last
    assert scrape(port) == ""
    events = [json.loads(line) for line in lines if line.startswith("{")]
    graded = [each for each in events if each["event"] == "graded"]
    assert {(each["sample"], each["attempt"]) for each in graded} == {(0, 1), (1, 1)}
    assert {(each["job"], each["instance"].partition("-0")[0]) for each in graded} == {
        ("job", "sqlparse")
    }
