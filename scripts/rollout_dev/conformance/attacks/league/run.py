"""Play the whole league from the command line, and write its page."""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from rollout_dev.conformance.attacks.league.games import Game, play
from rollout_dev.conformance.attacks.league.page import render
from rollout_dev.conformance.attacks.league.policies import load_policies
from rollout_dev.conformance.attacks.league.systems import InSandbox, Ours, SweBench, System
from rollout_dev.conformance.attacks.trials import local_site
from rollout_dev.report import Report, Row
from swe_rollout.grading.grader import Grader

PAGE: Final = Path(__file__).parents[5] / "docs/reference/attacks.md"
TESTS_S: Final = 300.0


def add_options(options: ArgumentParser) -> None:
    """Add the options of the league."""
    options.add_argument("--parallel", type=int, default=2, help="games at a time")
    options.add_argument("--ours", action="store_true", help="without other ways to grade")
    options.add_argument("--swebench", type=Path, help="a Python in which swebench is installed")
    options.add_argument("--write", action="store_true", help=f"write docs/reference/{PAGE.name}")


def main(chosen: Namespace) -> int:
    """Play, print the table, and return 1 when an attack resolved or an honest one did not."""
    games = asyncio.run(_play(chosen))
    ours = [game for game in games if game.system == Ours.title]
    report = Report(
        "league",
        tuple(_row(game) for game in games),
        ok=bool(ours) and all(game.fair for game in ours),
    )
    page = render(games)
    print(report.to_json() if chosen.json else page)
    if chosen.write:
        PAGE.write_text(page, encoding="utf-8")
    return 0 if report.ok else 1


async def _play(chosen: Namespace) -> tuple[Game, ...]:
    policies = load_policies(only=chosen.only)
    async with local_site() as site:
        systems: list[System] = [Ours(Grader(site.provider, timeout_s=TESTS_S))]
        if not chosen.ours:
            systems.append(InSandbox())
        if chosen.swebench:
            systems.append(SweBench(chosen.swebench))
        return await play(site, policies, systems, parallelism=chosen.parallel, on_game=_say)


def _say(game: Game) -> None:
    """Show progress."""
    mark = "" if game.fair else "UNFAIR"
    kind = "honest" if game.honest else "attack"
    detail = "; ".join((game.graded.detail, *game.graded.findings))
    sys.stderr.write(
        f"{mark:7}{game.policy:26}{kind:8}{game.system:16}{game.took_s:5.1f} s  {detail:.150}\n"
    )


def _row(game: Game) -> Row:
    return Row(
        game.policy,
        {"resolved": float(game.graded.resolved), "took_s": round(game.took_s, 1)},
        {
            "system": game.system,
            "kind": "honest" if game.honest else "attack",
            "outcome": game.graded.detail,
            "findings": "; ".join(game.graded.findings),
        },
    )
