"""A checked-out repository stands for one task, in an environment that can run its tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout.errors import PrerequisiteError
from swe_rollout.spec.sandbox import CheckoutSpec
from swe_rollout.types.instance import Evaluation, Instance
from swe_rollout.worker.sandboxes import of_checkout, open_checkout
from unit.sandbox.local.checkout_parts import commit, git, make_environment

SCRIPT = "set -u\n: '>>>>> Start Test Output'\n{}\n: '>>>>> End Test Output'\n"


def task(name: str = "one", base: str = "a" * 40, command: str = "make test") -> Instance:
    return Instance(
        instance_id=name,
        problem_statement="fix it",
        image="i",
        base_commit=base,
        evaluation=Evaluation(script=SCRIPT.format(command)),
    )


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("env") / "venv", runner=False)


def ignore(note: str) -> None:
    del note


def test_tasks_of_several_commits_are_refused(tmp_path: Path, bare: Path) -> None:
    spec = CheckoutSpec(workdir=str(tmp_path), python=str(bare))
    assert open_checkout(spec, [task(), task("two")], ignore).base_commit == "a" * 40
    with pytest.raises(PrerequisiteError, match="stands for one task"):
        open_checkout(spec, [task(), task("two", base="b" * 40)], ignore)


@pytest.mark.parametrize(
    "command",
    [
        "pytest -rA tests/test_a.py",
        "PYTHONWARNINGS=x python -m pytest a",
        "tox --current-env -epy39 -v -- tests/test_a.py",
    ],
)
def test_a_missing_runner_is_named_with_its_cure(tmp_path: Path, bare: Path, command: str) -> None:
    spec = CheckoutSpec(workdir=str(tmp_path), python=str(bare))
    with pytest.raises(PrerequisiteError, match="can't run in") as caught:
        open_checkout(spec, [task(command=command)], ignore)
    assert caught.value.why == "it has no pytest"
    assert f"{bare} -m pip install pytest" in (caught.value.fix or "")


def test_a_runner_of_the_repositorys_own_needs_nothing(tmp_path: Path, bare: Path) -> None:
    spec = CheckoutSpec(workdir=str(tmp_path), python=str(bare))
    hidden = replace(task(command="bin/test -C x"), test_patch="+pytest -rA\n")
    assert open_checkout(spec, [hidden], ignore).folder == tmp_path


def test_the_task_of_the_checked_out_commit_is_taken(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    head = commit(tmp_path, a="1")
    own, other = task(base=head), task("two", base="b" * 40)
    assert of_checkout([other, own], tmp_path) == [own]
    assert of_checkout([other, other], tmp_path) == [other, other]
    with pytest.raises(PrerequisiteError, match="no folder"):
        of_checkout([own], tmp_path / "none")
