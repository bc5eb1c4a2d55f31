"""Blind runs of tests in JavaScript, Java, Go and Rust, with real runtimes: the league's games.

Each needs its own: `apt-get install nodejs golang temurin-25-jdk`, and rustup.
"""

from __future__ import annotations

import pytest

from rollout_dev.conformance.attacks.league.games import load_policies, play
from rollout_dev.conformance.attacks.league.systems import Ours
from rollout_dev.conformance.attacks.league.tasks import LANGUAGES, load_task, task_site
from swe_rollout.grading.grader import Grader
from swe_rollout.sandbox.local import bubblewrap


# Go compiles its standard library anew in each sandbox.
@pytest.mark.parametrize(
    "language",
    [pytest.param(each, marks=pytest.mark.slow) if each == "go" else each for each in LANGUAGES],
)
async def test_values_are_taken_out_of_tests_of_another_language(language: str) -> None:
    if refusal := bubblewrap.refusal():
        pytest.skip(refusal)
    task = load_task(language)
    if task.found is None:
        pytest.skip(f"needs {task.program}")
    async with task_site(task) as site:
        grader = Grader(site.provider)
        verdict = await grader.grade_reference(site.instance, episode=site.episode())
        assert (verdict.resolved, verdict.unproven) == (True, ""), verdict.log_tail
        policies = load_policies(language)
        played = await play(site, policies, [Ours(grader)], parallelism=2, on_game=lambda _: None)
    unfair = [(game.policy, game.honest, game.graded) for game in played if not game.fair]
    assert not unfair
    details = {game.graded.detail for game in played if not game.honest}
    assert "tampered" in details
