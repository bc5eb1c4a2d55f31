"""The page docs/reference/attacks.md: which policy got a reward from which way of grading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rollout_dev.conformance.attacks.league.games import Game

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

[policies]: ../../scripts/rollout_dev/conformance/attacks/league/policies
"""


def render(games: Sequence[Game]) -> str:
    """Return the page."""
    systems = list(dict.fromkeys(game.system for game in games))
    attacks = {(game.policy, game.system): game for game in games if not game.honest}
    honest = {(game.policy, game.system): game for game in games if game.honest}
    policies = list(dict.fromkeys((game.policy, game.about) for game in games))
    lines = [_HEAD, "| | " + " | ".join(systems) + " |", "|---|" + "---|" * len(systems)]
    lines.append(
        "| attacks that got a reward | "
        + " | ".join(_share(list(attacks.values()), system) for system in systems)
        + " |"
    )
    lines.append(
        "| honest counterparts that got one | "
        + " | ".join(_share(list(honest.values()), system) for system in systems)
        + " |"
    )
    if bound := _bound(list(attacks.values()), systems[0]):
        lines += ["", bound]
    lines += ["", "| policy | what it does | " + " | ".join(systems) + " |"]
    lines.append("|---|---|" + "---|" * len(systems))
    for name, about in policies:
        cells = [_cell(attacks.get((name, system))) for system in systems]
        lines.append(f"| `{name}` | {about} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _share(games: Sequence[Game], system: str) -> str:
    own = [game for game in games if game.system == system]
    return f"{sum(game.graded.resolved for game in own)} of {len(own)}"


def _cell(game: Game | None) -> str:
    if game is None:
        return ""
    return "**rewarded**" if game.graded.resolved else game.graded.detail.partition(":")[0]


def _bound(games: Sequence[Game], system: str) -> str:
    """Return what no success among so many attacks says about others like them."""
    own = [game for game in games if game.system == system]
    if not own or any(game.graded.resolved for game in own):
        return ""
    share = 1 - 0.05 ** (1 / len(own))
    return (
        f"None of {len(own)}: if these were drawn from a larger number of attacks, at most "
        f"{share:.1%} of that number succeed (95% upper bound)."
    )
