"""The digest of a task: the same as ever, since stored jobs hold it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.types.instance import Evaluation, Expected, FolderTask, Instance, Rule, TaskFile
from swe_rollout.types.verdict import TestStatus

TEXTS = st.text(max_size=8)
LISTS = st.lists(TEXTS, max_size=3).map(tuple)
FILES = st.lists(st.builds(TaskFile, TEXTS, TEXTS, st.booleans()), max_size=2).map(tuple)
INSTANCES = st.builds(
    Instance,
    instance_id=TEXTS,
    problem_statement=TEXTS,
    image=TEXTS,
    source=TEXTS,
    gold_patch=TEXTS,
    evaluation=st.builds(Evaluation, script=st.none() | TEXTS, commands=LISTS),
    rule=st.sampled_from(Rule),
    expected=st.builds(
        Expected, LISTS, LISTS, st.dictionaries(TEXTS, st.sampled_from(TestStatus), max_size=2)
    ),
    hidden_paths=LISTS,
    extra=st.dictionaries(TEXTS, TEXTS, max_size=2),
    wants_network=st.none() | st.booleans(),
    folder=st.none() | st.builds(FolderTask, LISTS, start=FILES, tests=FILES),
)


def by_copies(instance: Instance) -> str:
    """The digest by the first version's words: everything that differs from a blank task."""
    told = asdict(replace(instance, source="", extra={}))
    blank = asdict(Instance(instance_id="", problem_statement="", image=""))
    kept = {name: told[name] for name in told if told[name] != blank[name]}
    if not instance.expected.others:
        told["expected"].pop("others")
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]


@given(instance=INSTANCES)
def test_the_digest_is_that_of_stored_jobs(instance: Instance) -> None:
    assert instance.digest == by_copies(instance)


def test_a_known_task_keeps_its_digest() -> None:
    task = Instance(
        instance_id="a",
        problem_statement="fix it",
        image="image:1",
        expected=Expected(("t",), ("u",)),
    )
    assert task.digest == "659d42bfbb2e"


@pytest.mark.parametrize("changed", [{"source": "swebench_v5"}, {"extra": {"difficulty": 1}}])
def test_where_a_task_came_from_does_not_count(changed: dict[str, object]) -> None:
    task = Instance(instance_id="a", problem_statement="fix it", image="image:1")
    assert replace(task, **changed).digest == task.digest  # type: ignore[arg-type]
    assert replace(task, gold_patch="diff").digest != task.digest
