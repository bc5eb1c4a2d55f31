"""Turns per second of whole agent loops against one scripted `/generate` server.

Ours with its engine pool and an in-memory sandbox, alone and as a worker plays it, the bare loop
below it, and strands-sglang's Agent: episodes of 50 tool turns, 1 to 256 of them at once, and one
of 1,000 turns.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rollout_dev.bench.as_worker import AsWorker
from rollout_dev.bench.loops import (
    Batch,
    Entrant,
    Floor,
    Ours,
    Samples,
    Strands,
    TextFloor,
    play,
    serving,
)
from rollout_dev.bench.workload import Workload
from rollout_dev.peers.environment import HOW, EpisodeDiedError, is_installed
from rollout_dev.report import Report, Row, program

OURS: Final = "swe-rollout"
WORKER: Final = "swe-rollout, as a worker"
FLOOR: Final = "bare loop"
TEXT_FLOOR: Final = "bare loop, text kept"
STRANDS: Final = "strands-sglang"
TO_TEXT_FLOOR: Final = 0.85
TO_STRANDS: Final = 2.8
TURNS: Final = 50
LONG: Final = 1000
_AT: Final = 64
"""The number of concurrent episodes to which the goals apply."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A number of concurrent episodes, their tool turns, and rounds."""

    episodes: int
    turns: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Found:
    """The samples and notes of a run."""

    samples: dict[str, dict[str, Samples]]
    """The samples by subject, then by stage."""
    notes: list[str] = field(default_factory=list)


FULL: Final = (Stage(1, TURNS, 7), Stage(16, TURNS, 3), Stage(64, TURNS, 5), Stage(256, 12, 3))
QUICK: Final = (Stage(1, TURNS, 3), Stage(64, 25, 3))


@program(quick="fewer, shorter rounds")
def main(given: Namespace) -> Report:
    """Run all rounds."""
    stages, work = QUICK if given.quick else FULL, Workload()
    entrants = [
        Entrant(OURS, lambda url: Ours(work, url)),
        Entrant(WORKER, lambda url: AsWorker(work, url)),
        Entrant(FLOOR, lambda url: Floor(work, url)),
        Entrant(TEXT_FLOOR, lambda url: TextFloor(work, url)),
    ]
    if is_installed("strands_sglang"):
        entrants.append(Entrant(STRANDS, lambda url: Strands(work, url)))
    found = Found({each.name: {} for each in entrants})
    for stage in stages:
        _play(stage, f"c{stage.episodes}", entrants, work, found)
    if not given.quick:
        # The bare loop would write millions of numbers as text: slow, and no more informative.
        long_ones = [each for each in entrants if each.name != FLOOR]
        _play(Stage(1, LONG, 3), f"turns_{LONG}", long_ones, work, found)
    return _report(found, stages)


def _play(
    stage: Stage, key: str, entrants: Sequence[Entrant], work: Workload, found: Found
) -> None:
    alive = list(entrants)
    with serving(work, stage.turns) as url:
        batch = Batch(url, stage.episodes, stage.turns)
        for number in range(stage.rounds):
            # No subject should always run right after the same other one.
            for entrant in _rotated(alive, number):
                sys.stderr.write(
                    f"\r{stage.episodes} at once, {stage.turns} turns, "
                    f"round {number + 1} of {stage.rounds}: {entrant.name:20}"
                )
                samples = found.samples[entrant.name].setdefault(key, Samples())
                try:
                    play(entrant, batch, samples)
                except EpisodeDiedError as died:
                    # It would die each time.
                    alive.remove(entrant)
                    del found.samples[entrant.name][key]
                    found.notes.append(f"{entrant.name}, episode of {stage.turns} turns: {died}")
    sys.stderr.write("\n")


def _report(found: Found, stages: Sequence[Stage]) -> Report:
    rows = [Row(name, _figures(samples)) for name, samples in found.samples.items()]
    if STRANDS not in found.samples:
        rows.append(Row(STRANDS, skipped=HOW))
    ratios = {
        **_ratios(found, "ours_to_floor", OURS, FLOOR),
        **_ratios(found, "ours_to_text_floor", OURS, TEXT_FLOOR),
        **_ratios(found, "worker_to_text_floor", WORKER, TEXT_FLOOR),
        **_ratios(found, "ours_to_strands", OURS, STRANDS),
    }
    cpu = found.samples[OURS][f"c{_AT}"].cpu_ratio_to(found.samples[TEXT_FLOOR][f"c{_AT}"])
    ratios["ours_to_text_floor_by_client_cpu"] = round(cpu, 3)
    is_near = ratios["ours_to_text_floor"] >= TO_TEXT_FLOOR
    ok = is_near and ratios.get("ours_to_strands", 9) >= TO_STRANDS
    lengths = "; ".join(
        f"{stage.episodes} at once: {stage.turns} tool turns, {stage.rounds} rounds"
        for stage in stages
    )
    return Report(
        "loop",
        tuple(rows),
        ok=ok,
        ratios=ratios,
        notes=(
            lengths,
            f"ratios compare turns per second; one without a stage is for {_AT} episodes at once",
            (
                f"goals: at least {TO_TEXT_FLOOR:g} times the bare loop that keeps text, "
                f"{TO_STRANDS:g} times {STRANDS}"
            ),
            "the bare loop writes each request from a list of ids; with text kept it does not",
            (
                "as a worker: with its scheduler, recorder, metrics and progress, a journal and a "
                "store in a folder"
            ),
            "one client process; the server is another process on the same machine",
            *found.notes,
        ),
    )


def _figures(samples: Mapping[str, Samples]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for key, each in samples.items():
        figures[f"{key}_per_s"] = round(each.turns_per_s, 1)
        figures[f"{key}_client_cpu_ms"] = round(each.client_cpu_ms, 2)
    return figures


def _ratios(found: Found, name: str, own: str, other: str) -> dict[str, float]:
    ours, theirs = found.samples[own], found.samples.get(other, {})
    ratios = {f"{name}_{key}": round(ours[key].ratio_to(theirs[key]), 3) for key in theirs}
    goal = ratios.get(f"{name}_c{_AT}")
    return ratios if goal is None else {name: goal, **ratios}


def _rotated(entrants: Sequence[Entrant], number: int) -> Sequence[Entrant]:
    first = number % len(entrants)
    return [*entrants[first:], *entrants[:first]]
