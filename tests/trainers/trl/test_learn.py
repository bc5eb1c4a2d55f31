"""The proof that it learns proves nothing if its base policy was told the answers."""

from __future__ import annotations

import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "07-learn"))


from swe_rollout import RolloutJob
from swe_rollout.agent.renderer import Renderer
from swe_rollout.testing.tiny import tokenizer_path

pytestmark = pytest.mark.trainers
policy: Any = import_module("policy")
tasks: Any = import_module("tasks")
TASKS = list(tasks.tasks())


def test_the_base_policy_reads_every_issue_with_four_edits_equally_often() -> None:
    job = RolloutJob.from_yaml(Path(tasks.__file__).with_name("job.yaml"))
    renderer = Renderer.load(str(tokenizer_path()))

    seen = Counter[tuple[str, str]]()
    for lesson in policy.lessons(job, TASKS, renderer):
        whole = renderer.decode(lesson.ids)
        issues = [each.problem_statement for each in TASKS if each.problem_statement in whole]
        edits = [each for each in tasks.MEANT.values() if f"|{each}|" in whole]
        assert (len(issues), len(edits)) == (1, 1)
        seen[issues[0], edits[0]] += 1
        said = [each for each in lesson.labels if each != policy.IGNORED]
        assert "submit" in renderer.decode(said)

    assert set(seen.values()) == {1}
    assert set(Counter(issue for issue, _ in seen).values()) == {4}
    assert Counter(edit for _, edit in seen) == dict.fromkeys(tasks.MEANT.values(), 16)
    for task in TASKS:
        word = next(word for word in tasks.MEANT if word in task.problem_statement)
        assert seen[task.problem_statement, tasks.MEANT[word]] == 1


def test_the_tests_of_a_task_accept_one_expression() -> None:
    known = {"max": max, "min": min}
    results = {
        tuple(eval(expression, {"a": a, "b": b, **known}) for a, b in tasks.ARGUMENTS)  # noqa: S307 - our own text
        for expression in tasks.MEANT.values()
    }
    assert len(results) == len(tasks.MEANT) == 8


def test_each_word_has_one_wording_that_is_held_out() -> None:
    held_out = [each.instance_id for each in TASKS if tasks.is_held_out(each.instance_id)]
    assert sorted(each.partition("-")[0] for each in held_out) == sorted(tasks.MEANT)
    assert len({each.partition("-")[2] for each in held_out}) == len(tasks.WORDINGS)
