"""What it costs to believe a resolved patch, and how many rows of a dataset can be proven.

    scripts/bench grading                            # the gold patches of the release pairs
    scripts/bench grading --coverage [DATASET…]      # how far each row's verdicts can be trusted

Each gold patch is graded in a local sandbox, twice: the first time its proof is measured, too. The
floor is one run of the tests in a clean sandbox, whose log is believed. Coverage has a line for
each row: the bits of the odds that are to be guessed, and what can be taken out of its tests.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final

from rollout_dev.report import Report, Row, option, program
from swe_rollout.cli.dataset_argument import NamedDataset, named_dataset
from swe_rollout.errors import EpisodeError
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.site import TestPlace
from swe_rollout.sandbox.base import Sandbox, SandboxRequest
from swe_rollout.sandbox.repository import Patch
from swe_rollout.sandbox.wrapped import WrappedSandboxes
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.worker.sandboxes import SandboxSetup, open_sandboxes

NAME: Final = "grading"
PAIRS: Final = "release-pairs"
GOAL_SANDBOXES: Final = 2
"""The most sandboxes for grading a resolved patch whose task has a proof."""


class _Counted(WrappedSandboxes):
    """A provider that counts the sandboxes that it starts."""

    started = 0

    async def start(self, request: SandboxRequest) -> Sandbox:
        self.started += 1
        return await super().start(request)


@program(
    option("--coverage", action="store_true", help="measure rows, not seconds"),
    option("dataset", nargs="*", default=[PAIRS], help="with --coverage"),
    quick="two pairs",
)
async def main(given: Namespace) -> Report:
    """Measure the cost of a verdict, or the coverage of datasets."""
    return await (_coverage(given.dataset) if given.coverage else _cost(quick=given.quick))


async def _on_each(
    dataset: str, one: Callable[[Grader, _Counted, Instance], Awaitable[Row]], *, most: int = 0
) -> list[Row]:
    named: NamedDataset = named_dataset(dataset, include=(), skip_bad_rows=True, with_files=None)
    instances = (await named.load())[: most or None]
    async with AsyncExitStack() as stack:
        setup = SandboxSetup(instances, "bench", lambda _: None, harmless=True)
        provider = _Counted(open_sandboxes(named.sandbox_of(None), setup, stack))
        grader = Grader(provider, log_parser=named.log_parser)
        rows = []
        for number, instance in enumerate(instances, 1):
            sys.stderr.write(f"{number} of {len(instances)}: {instance.instance_id}\n")
            rows.append(await one(grader, provider, instance))
        return rows


async def _cost(*, quick: bool) -> Report:
    rows = await _on_each(PAIRS, _graded, most=2 if quick else 0)
    ratios = [row.figures["resolved_s"] / row.figures["run_s"] for row in rows]
    most = max(row.figures["resolved_sandboxes"] for row in rows)
    return Report(
        NAME,
        tuple(rows),
        ok=most <= GOAL_SANDBOXES,
        ratios={
            "resolved_to_run": round(statistics.median(ratios), 3),
            "sandboxes_per_resolved": most,
        },
        notes=(f"goal: {GOAL_SANDBOXES} sandboxes for a resolved patch, beside a task's proof",),
    )


async def _graded(grader: Grader, provider: _Counted, instance: Instance) -> Row:
    async def timed(work: Callable[[], Awaitable[object]]) -> tuple[float, int]:
        began, before = time.monotonic(), provider.started
        await work()
        return round(time.monotonic() - began, 2), provider.started - before

    async def grade() -> None:
        patch = Patch(instance.gold_patch)
        verdict = await grader.grade(instance, patch, episode=EpisodeId("bench", "gold", 0))
        if not verdict.resolved:
            raise RuntimeError(f"{instance.instance_id} is {verdict.status.value} here")

    place = TestPlace(grader.site, instance, EpisodeId("bench", "floor", 0), 1)
    run_s, _ = await timed(lambda: place.run(instance.gold_patch))
    first_s, first = await timed(grade)
    resolved_s, resolved = await timed(grade)
    figures = {
        "run_s": run_s,
        "resolved_s": resolved_s,
        "resolved_sandboxes": resolved,
        "proof_s": round(first_s - resolved_s, 2),
        "proof_sandboxes": first - resolved,
    }
    return Row(instance.instance_id, figures)


async def _coverage(datasets: Sequence[str]) -> Report:
    rows: list[Row] = []
    shares: dict[str, float] = {}
    for dataset in datasets:
        found = await _on_each(dataset, _covered)
        rows += found
        known = [row for row in found if not row.skipped]
        proven = sum(row.figures["proven"] for row in known)
        shares[f"proven_of_{dataset}"] = round(proven / len(known), 3) if known else 0.0
    return Report("grading-coverage", tuple(rows), ok=bool(rows), ratios=shares)


async def _covered(grader: Grader, _: _Counted, instance: Instance) -> Row:
    try:
        proof = await grader.prove(instance, episode=EpisodeId("bench", instance.instance_id, 0))
    except EpisodeError as error:
        return Row(instance.instance_id, skipped=str(error))
    holes = proof.blind.blind.holes.values()
    figures = {
        "bits": round(-math.log2(proof.blind.odds), 1),
        "proven": float(not proof.unproven),
        "tests_to_fix": len(instance.expected.fail_to_pass),
        "watched": len(proof.blind.watched(instance.expected)),
    }
    kinds = Counter(type(hole.want).__name__ for hole in holes)
    taken = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return Row(instance.instance_id, figures, {"taken_out": taken, "unproven": proof.unproven})
