"""Break each thing that a job on a cluster depends on, one at a time, and check the job's records.

A counting policy works in pods of the dev cluster; its test passes if each of its commands took
effect once. In the middle of each job one thing is killed, stopped or cut off: the worker, the
operator, the engine, the store, sandboxes, the API server, etcd, the kubelet, containerd, or the
network between them. Afterwards no episode may be lost, run twice, or penalised for the fault.

Needs the dev cluster: `eval "$(scripts/dev-cluster up)"`.
"""

from __future__ import annotations

import math
import sys
import time
from argparse import Namespace
from collections.abc import Sequence

from rollout_dev.conformance.chaos import ground as grounds
from rollout_dev.conformance.chaos.counting_job import verdict_of
from rollout_dev.conformance.chaos.faults import SCENARIOS, Scenario
from rollout_dev.conformance.chaos.ground import Ground
from rollout_dev.conformance.chaos.processes import NotInTimeError, until
from rollout_dev.report import Report, Row, option, program

RECOVERY_S = 30.0
"""Time limit for the recovery of the worker and the operator."""
_JOB_S = 420.0


@program(
    option("--only", nargs="+", metavar="NAME", help="scenarios; default: all"),
    option("--list", action="store_true", help="print the scenarios' names and end"),
    option("--episodes", type=int, default=6),
    option("--turns", type=int, default=12),
    option("--parallelism", type=int, default=3),
    option("--pause", type=float, default=0.4, help="seconds of the engine per turn"),
    shows_logs=True,
)
def main(given: Namespace) -> Report:
    """Try the faults; none may cost anything."""
    if given.list:
        names = "\n".join(each.name for each in SCENARIOS)
        return Report("chaos", tuple(Row(each.name) for each in SCENARIOS), ok=True, text=names)
    chosen = [each for each in SCENARIOS if not given.only or each.name in given.only]
    if unknown := set(given.only or ()) - {each.name for each in SCENARIOS}:
        given.error(f"no such scenario: {', '.join(sorted(unknown))}; see --list")
    with grounds.opened(turns=given.turns, pause_s=given.pause) as ground:
        rows, notes = [], []
        for number, scenario in enumerate(chosen):
            row, said = _try(ground, scenario, f"job-{number}", given)
            sys.stderr.write(f"{number + 1}/{len(chosen)} {_text(row)}\n")
            rows.append(row)
            notes += [f"{scenario.name}: {each}" for each in said]
    return Report("chaos", tuple(rows), ok=not notes, notes=tuple(notes))


def _try(
    ground: Ground, scenario: Scenario, job: str, given: Namespace
) -> tuple[Row, Sequence[str]]:
    """Run a job with a fault in its middle; return its figures and what is wrong."""
    problems = []
    recovery_s = math.inf
    before = ground.sampled() or 0
    ground.apply(job, episodes=given.episodes, parallelism=given.parallelism)
    try:
        early = before + given.parallelism * given.turns // 3
        until(
            lambda: (ground.sampled() or 0) > early,
            within_s=_JOB_S,
            what=f"the first turns of {job}",
        )
        scenario.inflict(ground, job)
        since = time.monotonic()
        scenario.await_recovery(ground, job)
        recovery_s = time.monotonic() - since
        state = ground.until_ended(job, within_s=_JOB_S)
        if state != "Complete":
            problems.append(f"the job is {state}")
    except NotInTimeError as error:
        problems += [str(error), ground.describe(job)[-2000:]]
    verdicts = [verdict_of(record, given.turns) for record in ground.records(job)]
    left = ground.leftovers(job)
    figures = {
        "episodes": float(given.episodes),
        "committed": float(len(verdicts)),
        "lost": float(given.episodes - len({each.episode for each in verdicts})),
        "doubled": float(sum(each.doubled for each in verdicts)),
        "charged": float(sum(each.charged for each in verdicts)),
        "resumed": float(sum(each.resumed for each in verdicts)),
        "attached": float(sum(each.attached for each in verdicts)),
        "left_behind": float(len(left)),
    }
    if recovery_s < math.inf:
        figures["recovery_s"] = round(recovery_s, 1)
    problems += [f"{name} {figures[name]:g}" for name in _ZERO if figures[name]]
    problems += [each.problem for each in verdicts if each.problem]
    problems += left
    if scenario.resumes and not figures["resumed"]:
        problems.append("no episode went on: each began anew")
    if scenario.bounded and recovery_s > RECOVERY_S:
        problems.append(f"it took {recovery_s:.0f} s to recover; {RECOVERY_S:g} are allowed")
    ground.delete(job)
    return Row(scenario.name, figures), problems


_ZERO = ("lost", "doubled", "charged", "left_behind")


def _text(row: Row) -> str:
    return f"{row.subject}: " + ", ".join(
        f"{name} {value:g}" for name, value in row.figures.items()
    )
