"""Draw the pictures in docs/images from real runs of the demos.

    scripts/record-picture            demo.svg: the live view, and the table
    scripts/record-picture cluster    demo-cluster.svg: a job applied and followed

Fonts are the reader's own: a picture fetches nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT

from rich.console import Console
from rich.table import Table
from rich.text import Text

from swe_rollout.cli.live_layout import draw
from swe_rollout.live.progress import LiveProgress, LiveTitle
from swe_rollout.spec.load import load_job
from swe_rollout.store.summary import JobSummary
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.job import run_job

ROOT = Path(__file__).resolve().parents[3]
JOB = ROOT / "examples" / "01-release-pairs" / "job.yaml"
IMAGES = ROOT / "docs" / "images"
SHOWN_AFTER = 16
"""Finished episodes at the moment the live view is drawn."""
HEIGHT = 40


class Camera(LiveProgress):
    """Draws the live view once."""

    def __init__(self, console: Console, samples: int) -> None:
        about = ("scripted gold,wrong,malformed,loop",)
        super().__init__(LiveTitle("rolloutjob/demo", about, group_size=lambda _: samples))
        self.console = console

    def done(self, trajectory: Trajectory) -> None:
        super().done(trajectory)
        if self.counts.committed == SHOWN_AFTER:
            lines = draw(self.snapshot(), width=self.console.width, height=HEIGHT)
            self.console.print(*lines, sep="\n")


def main(arguments: Sequence[str]) -> None:
    """Draw one picture and print its path."""
    options = argparse.ArgumentParser(
        prog="scripts/record-picture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("where", nargs="?", choices=("local", "cluster"), default="local")
    console = Console(record=True, width=100, file=io.StringIO())
    if options.parse_args(arguments).where == "cluster":
        draw_cluster(console)
        out = IMAGES / "demo-cluster.svg"
    else:
        draw_local(console)
        out = IMAGES / "demo.svg"
    svg = console.export_svg(title="swe-rollout")
    # The picture must not fetch fonts: it names fonts that readers have.
    svg = re.sub(r"<!--.*?-->|@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(svg)
    print(out.relative_to(ROOT))


def draw_local(console: Console) -> None:
    """Draw the live view in the middle of a run, and the table at its end."""
    typed = f"$ swe-rollout run {JOB.relative_to(ROOT)} --name demo"
    console.print(Text(typed, "bold"), "\n", sep="")
    with tempfile.TemporaryDirectory() as store:
        overrides = ["metadata.name=demo", f"spec.store.uri=file://{store}"]
        job = load_job(JOB, overrides)
        found = asyncio.run(
            run_job(
                job,
                base_dir=JOB.parent,
                progress=Camera(console, job.spec.samples),
                on_note=print,
            )
        )
    console.print("\n…\n", _table(found.job))


def draw_cluster(console: Console) -> None:
    """Draw the output of the demo on the cluster, from the job on; run it on a fresh store."""
    done = subprocess.run(
        [ROOT / "scripts" / "demo", "cluster"], check=True, text=True, stdout=PIPE, stderr=STDOUT
    )
    lines = done.stdout.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("rolloutjob"))
    console.print(Text("$ make demo-cluster", "bold"), "…", sep="\n")
    for line in lines[first:]:
        if line.startswith("store "):
            break
        if line.startswith(
            ("rolloutjob", "state ", "progress ", "NAME", "release-pairs ")
        ) or re.match(r"(INSTANCE|\S+-[\d.]+) ", line):
            console.print(Text(line))


def _table(summary: JobSummary) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("INSTANCE")
    for name in ("SAMPLES", "RESOLVED", "MEAN REWARD", "TURNS", "TOKENS"):
        table.add_column(name, justify="right")
    for row in summary.by_instance:
        table.add_row(
            row.instance,
            str(row.samples),
            str(row.resolved),
            f"{row.mean_reward:.2f}",
            str(row.turns),
            str(row.tokens),
        )
    return table


if __name__ == "__main__":
    main(sys.argv[1:])
