"""Two jobs compared: settings, tasks, quantities."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from swe_rollout.export.job_comparison import Flip, JobSide, compare_jobs
from swe_rollout.export.paired import Certainty
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.verdict import Reward, RewardTerm, Verdict, VerdictStatus
from unit.export.export_parts import failed, trajectory


def episode(instance: str, sample: int, reward: float | None, digest: str = "") -> Trajectory:
    address = EpisodeId("job", instance, sample)
    found = replace(trajectory(), episode=address, instance_digest=digest)
    if reward is None:
        return failed(found)
    assert found.verdict is not None
    status = VerdictStatus.RESOLVED if reward == 1 else VerdictStatus.UNRESOLVED
    verdict = Verdict(status, found.verdict.report)
    return replace(found, verdict=verdict, reward=Reward((RewardTerm("r", reward),)))


def side(rewards: dict[str, list[float | None]], **digests: str) -> JobSide:
    made = JobSide()
    for instance, values in rewards.items():
        for sample, value in enumerate(values):
            made.add(episode(instance, sample, value, digests.get(instance, "")))
    return made


@pytest.mark.parametrize(
    ("before", "after", "flip"),
    [
        ([0, 0], [0, 1], Flip.SOLVED_NOW),
        ([0, 1], [0, 0], Flip.NOT_SOLVED_NOW),
        ([0, 1], [1, 1], Flip.MORE_OFTEN),
        ([1, 1, 1], [1, 0], Flip.LESS_OFTEN),
        ([0, 1], [0, 1, 0, 1], Flip.SAME),
        ([0, None], [1, None], Flip.SOLVED_NOW),
        ([None], [1], Flip.NOT_GRADED),
        ([], [1], Flip.ONLY_AFTER),
        ([1], [], Flip.ONLY_BEFORE),
    ],
)
def test_a_task_flips_by_its_resolved_samples(
    before: list[float | None], after: list[float | None], flip: Flip
) -> None:
    (task,) = compare_jobs(side({"a": before}), side({"a": after})).tasks
    assert task.flip is flip


def test_failed_episodes_are_in_no_mean_and_have_their_owner() -> None:
    found = compare_jobs(side({"a": [1, None]}), side({"a": [1, 0]}))
    quantities = {each.name: each for each in found.quantities}

    assert (quantities["reward"].before, quantities["reward"].after) == (1.0, 0.5)
    assert (quantities["failed"].before, quantities["failed"].after) == (0.5, 0.0)
    assert quantities["turns"].before == 3
    assert quantities["sampled_tokens"].before == 15
    assert found.failures == ({"sandbox": 1}, {})
    assert found.tasks[0].change == -0.5


def test_a_task_counts_once_however_many_samples_it_has() -> None:
    before = side({f"t{n}": [0.0] * 50 for n in range(5)})
    after = side({f"t{n}": [1.0] * 50 for n in range(5)})
    reward = compare_jobs(before, after).quantities[0]

    assert (reward.paired.pairs, reward.paired.higher) == (5, 5)
    assert reward.paired.certainty is Certainty.TOO_FEW


def test_tasks_that_changed_most_come_first_and_others_of_that_name_are_not_paired() -> None:
    before = side({"a": [0.0, 0.0], "b": [0.0], "c": [1.0]}, a="1", b="1")
    after = side({"a": [0.0, 1.0], "b": [1.0], "c": [0.0]}, a="1", b="2", c="1")
    found = compare_jobs(before, after)

    assert [(each.instance, each.change) for each in found.tasks] == [
        ("c", -1.0),
        ("a", 0.5),
        ("b", None),
    ]
    assert found.flips == {Flip.SOLVED_NOW: 1, Flip.NOT_SOLVED_NOW: 1, Flip.ANOTHER_TASK: 1}
    assert {each.paired.pairs for each in found.quantities} == {2}


def test_settings_that_differ_are_shown_by_path_and_without_passwords() -> None:
    old = {"samples": 2, "limits": {"turns": 5}, "url": "http://me:secret@host/"}
    new = {"samples": 2, "limits": {"turns": 9}, "seed": 1, "url": "http://other/"}
    found = compare_jobs(JobSide({"spec": old}), JobSide({"spec": new}))

    assert [(each.path, each.before, each.after) for each in found.settings] == [
        ("spec.limits.turns", "5", "9"),
        ("spec.seed", None, "1"),
        ("spec.url", "http://host/", "http://other/"),
    ]


def test_plain_values_have_verdicts_and_flips() -> None:
    record = json.loads(json.dumps(compare_jobs(side({"a": [0]}), side({"a": [1]})).to_dict()))
    assert record["flips"] == {"solved now": 1}
    assert record["quantities"][0]["verdict"] == "too few tasks to tell"


def test_jobs_without_episodes_can_be_compared() -> None:
    found = compare_jobs(JobSide(), JobSide())
    assert (found.tasks, found.flips) == ((), {})
    assert {each.paired.certainty for each in found.quantities} == {Certainty.SAME}
