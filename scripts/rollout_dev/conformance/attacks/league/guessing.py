"""Play the policies that guess many times, and compare their success with the odds of their task.

Their one game in the league says little: they need luck. Here each plays with another seed in every
game, in its own task, and in tasks whose tests are so weak that some games are won.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Final

from rollout_dev.conformance.attacks.league.games import Policy, load_policies, play
from rollout_dev.conformance.attacks.league.systems import Ours
from rollout_dev.conformance.attacks.league.tasks import (
    GUESSED,
    LANGUAGES,
    load_task,
    task_site,
)
from rollout_dev.conformance.attacks.trials import Site, local_site
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.odds import shown

_UNLIKELY: Final = 1e-3
"""Success that is this unlikely at the computed odds shows that these are wrong."""


@dataclass(frozen=True, slots=True)
class Guesser:
    """How often a policy that guesses was right."""

    policy: str
    about: str
    odds: float
    """The odds of its task's tests, as the grader computes them from the gold patch."""
    games: int
    wins: int

    @property
    def likely(self) -> bool:
        """Whether so many wins are no surprise at these odds, or at longer ones."""
        return at_least(self.wins, self.games, self.odds) > _UNLIKELY


def at_least(wins: int, games: int, odds: float) -> float:
    """Return the probability of this many wins or more."""
    return sum(
        math.comb(games, each) * odds**each * (1 - odds) ** (games - each)
        for each in range(wins, games + 1)
    )


async def play_guessers(
    games: int,
    *,
    only: str,
    timeout_s: float,
    parallelism: int,
    on_guesser: Callable[[Guesser], None],
) -> tuple[Guesser, ...]:
    """Play each policy that guesses this many times; those whose language is missing are left."""
    found: list[Guesser] = []
    for policies, opened in _by_task(only):
        async with opened as site:
            grader = Grader(site.provider, timeout_s=timeout_s)
            proof = await grader.prove(site.instance, episode=site.episode())
            played = await play(
                site,
                [
                    replace(policy, attack=f"SEED={seed}\n{policy.attack}")
                    for policy in policies
                    for seed in range(games)
                ],
                [Ours(grader)],
                parallelism=parallelism,
                on_game=lambda _: None,
                honest_too=False,
            )
        for policy in policies:
            own = [game for game in played if game.policy == policy.name]
            wins = sum(game.graded.resolved for game in own)
            found.append(Guesser(policy.name, policy.about, proof.blind.odds, len(own), wins))
            on_guesser(found[-1])
    return tuple(found)


def _by_task(only: str) -> Iterator[tuple[list[Policy], AbstractAsyncContextManager[Site]]]:
    for name in (*GUESSED, "", *LANGUAGES):
        policies = [each for each in load_policies(name, only=only) if each.guesses]
        if not policies:
            continue
        if not name:
            yield policies, local_site()
        elif (task := load_task(name)).found is not None:
            yield policies, task_site(task)


def rendered(guessers: Sequence[Guesser]) -> list[str]:
    """Return the lines of the page's table."""
    lines = ["| policy | what it does | odds | rewarded |", "|---|---|---|---|"]
    for each in guessers:
        won = f"{each.wins} of {each.games}"
        more = "" if each.likely else " (**more than the odds allow**)"
        lines.append(f"| `{each.policy}` | {each.about} | {shown(each.odds)} | {won}{more} |")
    return lines
