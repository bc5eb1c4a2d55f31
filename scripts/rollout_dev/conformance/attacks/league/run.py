"""Play the whole league from the command line, and write its page."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rollout_dev.conformance.attacks.league.games import Game, load_policies, play
from rollout_dev.conformance.attacks.league.guessing import Guesser, play_guessers, rendered
from rollout_dev.conformance.attacks.league.systems import InSandbox, Ours, SweBench, System
from rollout_dev.conformance.attacks.league.tasks import LANGUAGES, load_task, task_site
from rollout_dev.conformance.attacks.trials import local_site
from rollout_dev.report import Report, Row, option
from swe_rollout.grading.grader import Grader

_HEAD: Final = """\
# The attack league

Policies that want a reward they have not earned, each executed against several ways to grade.
Written by `scripts/conformance attacks --league --write`; each policy is [one file][policies],
which also has an honest counterpart: the true fix, with an edit of the same kind.

- **swe-rollout**: this package ([how it grades](../explanation/grading.md)).
- **in the sandbox**: the hidden tests run in the sandbox that the policy has changed, and their log
  is believed.
- **swebench**: a clean container, the official steps, and swebench's own verdict on the log, where
  it is installed (`--swebench PYTHON`).

The task is `semver` of the release pairs: Python, pytest. A policy knows the ids of all tests.
Those with a language before their names play a small task in it, against swe-rollout.

[policies]: ../../scripts/rollout_dev/conformance/attacks/league/policies
"""
_GUESSING: Final = """\
## Guessing

Policies that don't solve the task but guess what was taken out of its tests, each with another seed
in every game. The odds are those that `validate` shows for the task, computed from its tests and
the gold patch before anybody guesses. The tasks `digit`, `word` and `answers` have one weak test
each: whoever guesses there is often right, and the verdict is `unproven`.
"""
PAGE: Final = Path(__file__).parents[5] / "docs/reference/attacks.md"
TESTS_S: Final = 300.0


OPTIONS: Final = (
    option("--parallel", type=int, default=2, help="games at a time"),
    option("--guess", type=int, default=0, metavar="N", help="also play those that guess N times"),
    option("--ours", action="store_true", help="without other ways to grade"),
    option("--swebench", type=Path, help="a Python in which swebench is installed"),
    option("--write", action="store_true", help=f"write docs/reference/{PAGE.name}"),
)
"""The options of the league."""


async def league(chosen: Namespace) -> Report:
    """Play; no attack may resolve, and every honest policy has to."""
    guessers: tuple[Guesser, ...] = ()
    if chosen.guess:
        guessers = await play_guessers(
            chosen.guess,
            only=chosen.only,
            timeout_s=TESTS_S,
            parallelism=chosen.parallel,
            on_guesser=lambda each: print(rendered([each])[-1], file=sys.stderr),
        )
    games = await _play(chosen)
    ours = [game for game in games if game.system == Ours.title]
    page = render(games, guessers)
    if chosen.write:
        PAGE.write_text(page, encoding="utf-8")
    return Report(
        "league",
        (*map(_row, games), *map(_guesser_row, guessers)),
        ok=bool(ours or guessers)
        and all(game.fair for game in ours)
        and all(each.likely for each in guessers),
        text=page,
    )


async def _play(chosen: Namespace) -> tuple[Game, ...]:
    games = await _in_languages(chosen)
    policies = load_policies(only=chosen.only)
    async with local_site() as site:
        systems: list[System] = [Ours(Grader(site.provider, timeout_s=TESTS_S))]
        if not chosen.ours:
            systems.append(InSandbox())
        if chosen.swebench:
            systems.append(SweBench(chosen.swebench))
        games += await play(site, policies, systems, parallelism=chosen.parallel, on_game=_say)
    return tuple(games)


async def _in_languages(chosen: Namespace) -> list[Game]:
    games: list[Game] = []
    for language in LANGUAGES:
        task, policies = load_task(language), load_policies(language, only=chosen.only)
        if task.found is None:
            sys.stderr.write(f"{language}: {len(policies)} policies need {task.program}\n")
        elif policies:
            async with task_site(task) as site:
                ours = Ours(Grader(site.provider, timeout_s=TESTS_S))
                games += await play(
                    site, policies, [ours], parallelism=chosen.parallel, on_game=_say
                )
    return games


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


def _guesser_row(each: Guesser) -> Row:
    figures = {"odds": each.odds, "games": float(each.games), "wins": float(each.wins)}
    return Row(f"{each.policy}, guessing", figures)


def render(games: Sequence[Game], guessers: Sequence[Guesser] = ()) -> str:
    """Return the page."""
    systems = list(dict.fromkeys(game.system for game in games))
    attacks = {(game.policy, game.system): game for game in games if not game.honest}
    honest = {(game.policy, game.system): game for game in games if game.honest}
    policies = list(dict.fromkeys((game.policy, game.about) for game in games))
    lines = [_HEAD, "| | " + " | ".join(systems) + " |", "|---|" + "---|" * len(systems)]
    for title, of in (
        ("attacks that got a reward", attacks),
        ("honest counterparts that got one", honest),
    ):
        shares = (_share(list(of.values()), system) for system in systems)
        lines.append(f"| {title} | {' | '.join(shares)} |")
    if bound := _bound(list(attacks.values()), Ours.title):
        lines += ["", bound]
    lines += ["", "| policy | what it does | " + " | ".join(systems) + " |"]
    lines.append("|---|---|" + "---|" * len(systems))
    for name, about in policies:
        cells = [_cell(attacks.get((name, system))) for system in systems]
        lines.append(f"| `{name}` | {about} | " + " | ".join(cells) + " |")
    if guessers:
        lines += ["", _GUESSING, *rendered(guessers)]
    return "\n".join([*lines, ""])


def _share(games: Sequence[Game], system: str) -> str:
    own = [game for game in games if game.system == system]
    return f"{sum(game.graded.resolved for game in own)} of {len(own)}"


def _cell(game: Game | None) -> str:
    if game is None:
        return ""
    return "**rewarded**" if game.graded.resolved else game.graded.detail.partition(":")[0]


def _bound(games: Sequence[Game], system: str) -> str:
    """Return an upper bound on the success rate of such attacks if none of these succeeded."""
    own = [game for game in games if game.system == system]
    if not own or any(game.graded.resolved for game in own):
        return ""
    share = 1 - 0.05 ** (1 / len(own))
    return (
        f"None of {len(own)}: if these were drawn from a larger number of attacks, at most "
        f"{share:.1%} of that number succeed (95% upper bound)."
    )
