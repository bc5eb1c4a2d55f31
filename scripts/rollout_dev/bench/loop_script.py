"""The scripted server of `bench loop`: its process and its script."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollout_dev.bench.workload import LOGPROB, SampledTurn, Workload


@contextmanager
def serving(work: Workload, turns: int) -> Iterator[str]:
    """Run a server whose policy calls a tool in `turns` turns, then finishes; yield its address."""
    responses = [*work.turns(turns), work.last()]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "script.json"
        script = {"marker": work.marker(), "responses": [_turn(each) for each in responses]}
        file.write_text(json.dumps(script), "utf-8")
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rollout_dev.bench.generate_server", str(file)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None  # noqa: S101 - a pipe, see above
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.communicate()


def _turn(sampled: SampledTurn) -> dict[str, object]:
    return {"ids": sampled.ids, "text": sampled.text, "logprob": LOGPROB}
