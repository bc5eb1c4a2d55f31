"""What the journal of episodes costs: a turn with it and without it, in local sandboxes.

The same job is run with `retry.resume: never` and `exact`, one after the other: episodes of a
counting policy whose engine takes half a second for a turn. Exits with 1 where a turn takes longer
than the goal allows.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Final

from rollout_dev.counting import VARIABLES, records, run_command, write_job
from rollout_dev.report import Report, Row, option, program

GOAL: Final = 1.03
"""The most time a turn may take, relative to a turn without a journal."""
_POLICIES: Final = ("never", "exact")


@program(
    option("--episodes", type=int, default=64, help="all at once"),
    option("--turns", type=int, default=20),
    option("--pause", type=float, default=0.5, help="seconds of the engine per turn"),
    option("--rounds", type=int, default=3),
    shows_logs=True,
)
def main(given: Namespace) -> Report:
    """Run both, and return the time of a turn."""
    turns: dict[str, list[float]] = {policy: [] for policy in _POLICIES}
    for round_ in range(given.rounds):
        for policy in _POLICIES:
            sys.stderr.write(f"\rround {round_ + 1} of {given.rounds}: resume {policy}   ")
            with tempfile.TemporaryDirectory() as name:
                turns[policy].append(_turn_s(Path(name), policy, given))
    sys.stderr.write("\n")
    medians = {policy: statistics.median(found) for policy, found in turns.items()}
    ratio = medians["exact"] / medians["never"]
    rows = tuple(
        Row(f"resume: {policy}", {"turn_ms": round(median * 1000, 2)})
        for policy, median in medians.items()
    )
    notes = (
        f"{given.episodes} episodes at once, {given.turns} turns each, {given.rounds} rounds",
        f"the engine takes {given.pause:g} s for a turn",
        "a turn's time: of the agent, from its first turn to its diff, over its turns",
        f"goal: at most {GOAL:g} times a turn without a journal",
    )
    ratios = {"with_to_without": round(ratio, 4)}
    return Report("journal", rows, ok=ratio <= GOAL, ratios=ratios, notes=notes)


def _turn_s(folder: Path, policy: str, given: Namespace) -> float:
    """Return the mean time of a turn over all episodes."""
    job = write_job(
        folder,
        episodes=given.episodes,
        turns=given.turns,
        parallelism=given.episodes,
        pause_s=given.pause,
        resume=policy,
    )
    env = os.environ | VARIABLES
    subprocess.run(run_command(job), check=True, capture_output=True, env=env)
    return statistics.fmean(
        (record["timing"]["total_s"] - record["timing"]["start_s"]) / len(record["turns"])
        for record in records(folder).values()
    )
