"""Attacks by a hostile policy or its patch: each is executed, and none may succeed.

They run in this machine's sandboxes and, with `--pods`, in pods of the cluster of $KUBECONFIG,
which needs the images of `scripts/build-images --load`. Prints attack and outcome; exits with 1 if
one succeeded. With `--league`, only attacks on grading run, also against other ways to grade.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rollout_dev.conformance.attacks.attack import (
    DIFF_ATTACKS,
    GATEWAY_ATTACKS,
    LOCAL_ATTACKS,
    PATCH_ATTACKS,
    SUPERVISOR_ATTACKS,
    Attack,
    DiffAttack,
    Kind,
    PatchAttack,
)
from rollout_dev.conformance.attacks.gateway import gateway_scene
from rollout_dev.conformance.attacks.league import run
from rollout_dev.conformance.attacks.local_scene import open_scene
from rollout_dev.conformance.attacks.trials import (
    Site,
    Trial,
    diff_trial,
    local_site,
    patch_trial,
    pod_site,
    script_trial,
)
from rollout_dev.report import Report, Row, option, program
from swe_rollout.sandbox.local import bubblewrap

_EVERYWHERE: Final[tuple[Attack | DiffAttack | PatchAttack, ...]] = (
    *SUPERVISOR_ATTACKS,
    *DIFF_ATTACKS,
    *PATCH_ATTACKS,
)


@dataclass(frozen=True, slots=True)
class Result:
    """An attack at a site, and how it ended."""

    site: str
    kind: str
    name: str
    trial: Trial


@program(
    option("--pods", action="store_true", help="in pods as well"),
    option("--only", default="", metavar="TEXT", help="attacks with this in the name"),
    option("--league", action="store_true", help="play the attack league instead"),
    *run.OPTIONS,
)
async def main(given: Namespace) -> Report:
    """Carry out the attacks."""
    if given.league:
        return await run.league(given)
    results, only = [], given.only
    if refusal := bubblewrap.refusal():
        sys.stderr.write(f"not on this machine's sandboxes: {refusal}\n")
    else:
        results += await _planted(only)
        async with local_site() as site:
            results += await _at(site, only)
    if given.pods:
        async with pod_site(os.environ.get("KUBECONFIG", "")) as site:
            results += await _at(site, only)
    return _report(results)


async def _planted(only: str) -> list[Result]:
    """Run the attacks that look for secrets planted on this machine."""
    results = []
    async with open_scene() as scene:
        for attack in (each for each in LOCAL_ATTACKS if only in each.name):
            trial = await scene.run(attack)
            results.append(_said(Result("local", attack.kind, attack.name, trial)))
    return results


async def _at(site: Site, only: str) -> list[Result]:
    results = [_said(await _run(site, attack)) for attack in _EVERYWHERE if only in attack.name]
    async with gateway_scene() as scene:
        for attack in (each for each in GATEWAY_ATTACKS if only in each.name):
            trial = await scene.attack(site, attack)
            results.append(_said(Result(site.name, "gateway", attack.name, trial)))
    return results


async def _run(site: Site, attack: Attack | DiffAttack | PatchAttack) -> Result:
    match attack:
        case Attack():
            return Result(site.name, attack.kind, attack.name, await script_trial(site, attack))
        case DiffAttack():
            return Result(site.name, "diff", attack.name, await diff_trial(site, attack))
        case PatchAttack():
            trial = await patch_trial(site, attack)
            return Result(site.name, Kind.FORGERY, attack.name, trial)


def _said(result: Result) -> Result:
    """Show progress."""
    mark = "held" if result.trial.held else "NOT HELD"
    sys.stderr.write(f"{mark:9}{result.site:7}{result.name}\n")
    return result


def _table(results: Sequence[Result]) -> str:
    lines = [f"{each.site:7}{each.kind:9}{each.name:62.62}{each.trial.outcome}" for each in results]
    held = sum(each.trial.held for each in results)
    most = max((each.trial.stall_s for each in results), default=0.0)
    summary = f"{held} of {len(results)} attacks held; longest stall of the controller {most:.2f} s"
    return "\n".join([*lines, summary])


def _report(results: Sequence[Result]) -> Report:
    rows = tuple(
        Row(
            each.name,
            {
                "held": float(each.trial.held),
                "stall_s": round(each.trial.stall_s, 3),
                "took_s": round(each.trial.took_s, 2),
            },
            {"site": each.site, "kind": each.kind, "outcome": each.trial.outcome},
        )
        for each in results
    )
    ok = bool(rows) and all(each.trial.held for each in results)
    return Report("attacks", rows, ok=ok, text=_table(results))
