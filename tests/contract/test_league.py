"""The attack league in short: some policies, and each defence taken away, so that one of them wins.

`make league` plays all of them, also against other ways to grade.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from rollout_dev.conformance.attacks.league.games import Game, load_policies, play
from rollout_dev.conformance.attacks.league.systems import Ours
from rollout_dev.conformance.attacks.trials import Site, local_site
from swe_rollout.grading import blind_files, junit, proof, rules, steering, working_tree
from swe_rollout.grading.blind import Blind, BlindRun, Expectation
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.site import TestSite
from swe_rollout.sandbox.base import Sandbox, SandboxRequest
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.spec.grading import Integrity
from swe_rollout.types.instance import Expected

pytestmark = [
    pytest.mark.skipif(
        bool(bubblewrap.refusal()), reason="needs bubblewrap: apt-get install bubblewrap"
    ),
    pytest.mark.threat(point=2),
]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with local_site() as opened:
        yield opened


async def games(site: Site, *names: str, grader: Grader, honest: bool = False) -> list[Game]:
    policies = [each for each in load_policies() if each.name in names]
    assert len(policies) == len(names)
    played = await play(
        site,
        policies,
        [Ours(grader)],
        parallelism=2,
        on_game=lambda _: None,
        honest_too=honest,
    )
    return list(played)


def test_every_policy_says_what_it_does_and_has_a_counterpart() -> None:
    policies = load_policies()
    assert len(policies) >= 50
    assert all(each.about and each.attack and each.honest.strip() for each in policies)


async def test_attacks_of_each_kind_fail_and_their_counterparts_resolve(site: Site) -> None:
    played = await games(
        site,
        "conftest_makereport",
        "package_patches_report",
        "exit_with_junit",
        "expected_from_frame",
        grader=Grader(site.provider, timeout_s=300.0),
        honest=True,
    )
    unfair = [(game.policy, game.honest, game.graded) for game in played if not game.fair]
    assert not unfair
    found = {game.policy: game.graded.detail for game in played if not game.honest}
    assert found == {
        "conftest_makereport": "unresolved",
        "package_patches_report": "tampered",
        "exit_with_junit": "tampered",
        "expected_from_frame": "tampered",
    }


async def test_a_job_may_record_what_it_finds_and_let_the_verdict_stand(site: Site) -> None:
    grader = Grader(site.provider, timeout_s=300.0, integrity=Integrity.RECORD)
    (game,) = await games(site, "package_patches_report", grader=grader)
    assert game.graded.resolved
    assert any(finding.startswith("tampered: ") for finding in game.graded.findings)


def no_steering_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "_STEERING", re.compile("(?!)"))


def no_test_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "_TESTS", re.compile("(?!)"))


def no_shadows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering.Task, "shadows", lambda *_: ())


def no_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "_COMPILED", ())


def paths_as_the_diff_says(monkeypatch: pytest.MonkeyPatch) -> None:
    script = working_tree._script
    named = "sed -n 's,^+++ [^/]*/\\(.*\\),./\\1,p' \"$tmp/patch\" | tr '\\n' '\\0'"

    def changed(name: str) -> str:
        return re.sub(r"find \. .*-print0", lambda _: named, script(name))

    monkeypatch.setattr(working_tree, "_script", changed)


def without_blind_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "make_blind", lambda *_: Blind({}))


def without_failing_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blind_files, "_sample", lambda *_: [])


def without_records(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Expectation.problems

    def problems(self: Expectation, seen: BlindRun, expected: Expected) -> tuple[str, ...]:
        return tuple(each for each in judged(self, seen, expected) if "computed" not in each)

    monkeypatch.setattr(Expectation, "problems", problems)


def objects_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Expectation, "require_plain", lambda *_: None)


def one_sandbox_for_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[Sandbox] = []

    @asynccontextmanager
    async def again(tests: TestSite, request: SandboxRequest) -> AsyncIterator[Sandbox]:
        if not shared:
            shared.append(await tests.provider.start(request))
        await shared[0].exec("git reset -q --hard; git clean -fdq")
        yield shared[0]

    monkeypatch.setattr(TestSite, "sandbox", again)


def no_statuses_of_gold(monkeypatch: pytest.MonkeyPatch) -> None:
    without_blind_run(monkeypatch)
    monkeypatch.setattr(proof, "_unlike", lambda *_: ())


def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    without_blind_run(monkeypatch)
    monkeypatch.setattr(junit, "with_report", lambda *_: None)


def no_contradictions(monkeypatch: pytest.MonkeyPatch) -> None:
    no_report(monkeypatch)
    monkeypatch.setattr(rules, "contradictions", lambda *_: frozenset())


@pytest.mark.parametrize(
    ("remove", "winner"),
    [
        pytest.param(no_steering_files, "plain_diff", id="files that steer"),
        pytest.param(no_test_folders, "fix_in_test_helper", id="folders of tests"),
        pytest.param(no_shadows, "fix_in_shadow", id="modules in place of others"),
        pytest.param(no_compiled, "fix_in_bytecode", id="compiled code"),
        pytest.param(paths_as_the_diff_says, "plain_diff", id="paths from the tree"),
        pytest.param(without_blind_run, "always_equal", id="the blind run"),
        pytest.param(without_failing_tests, "kept_tests_broken", id="tests that have to fail"),
        pytest.param(without_records, "blind_guesses", id="records of blind tests"),
        pytest.param(objects_are_believed, "blind_object", id="plain values alone"),
        pytest.param(one_sandbox_for_all_runs, "remembers_expected", id="a sandbox for each run"),
        pytest.param(no_statuses_of_gold, "xfail_from_function", id="statuses of gold"),
        pytest.param(no_report, "exit_from_function", id="the report of the runner"),
        pytest.param(no_contradictions, "exit_atexit", id="contradictions in the log"),
    ],
)
async def test_without_a_defence_a_policy_wins(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    remove: Callable[[pytest.MonkeyPatch], None],
    winner: str,
) -> None:
    remove(monkeypatch)
    (game,) = await games(site, winner, grader=Grader(site.provider, timeout_s=300.0))
    assert game.graded.resolved, game.graded
