"""Check that a checked-out repository and an environment can stand in for the image of a task."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from swe_rollout.errors import PrerequisiteError
from swe_rollout.sandbox.local.checkout import Checkout, head_commit
from swe_rollout.sandbox.local.environment import Environment, read_environment
from swe_rollout.spec.sandbox import CheckoutSpec
from swe_rollout.types.instance import Instance

_SEVERAL: Final = 2
_PYTEST: Final = re.compile(r"^\s*(?:\w+=\S*\s+)*(?:python[\d.]*\s+-m\s+)?pytest\b", re.MULTILINE)
_TOX: Final = re.compile(r"^\s*(?:\w+=\S*\s+)*tox\b", re.MULTILINE)


def open_checkout(
    spec: CheckoutSpec, instances: Sequence[Instance], on_note: Callable[[str], None]
) -> Checkout:
    """Return what sandboxes of these tasks are made of.

    Raises PrerequisiteError when the tasks don't share a base commit, when the environment does not
    run, and when it lacks the program that runs the tests.
    """
    commits = {instance.base_commit for instance in instances if instance.folder is None}
    if len(commits) != 1:
        named = ", ".join(sorted(instance.instance_id for instance in instances)[:3])
        raise PrerequisiteError(
            "a checked-out repository stands for one task",
            why=f"there are {len(instances)} tasks: {named}, …",
            fix="choose one: --instance ID, or dataset.include in a job",
        )
    folder = _existing(Path(spec.workdir))
    environment = read_environment(Path(spec.python).expanduser())
    for instance in instances:
        _require_runner(instance, environment)
    return Checkout(folder, environment, commits.pop(), on_note=on_note)


def of_checkout(instances: Sequence[Instance], folder: Path) -> Sequence[Instance]:
    """Return the tasks that start from the commit at which `folder` is; all where none does.

    Raises PrerequisiteError when there is no such folder.
    """
    folder = _existing(folder)
    if len(instances) < _SEVERAL:
        return instances
    head = head_commit(folder)
    return [each for each in instances if head and each.base_commit == head] or instances


def _existing(folder: Path) -> Path:
    folder = folder.expanduser().absolute()
    if not folder.is_dir():
        raise PrerequisiteError(
            f"there is no folder {folder}", fix="name the task's checked-out repository"
        )
    return folder


def _require_runner(instance: Instance, environment: Environment) -> None:
    """Raise PrerequisiteError when the environment lacks the program that runs the tests."""
    text = (instance.evaluation.script or "") + "\n".join(instance.evaluation.commands)
    text = text.replace(instance.test_patch, "") if instance.test_patch else text
    # A sandbox's `tox` makes do with pytest.
    is_there = (
        "pytest" in environment.programs
        if (command := _PYTEST.search(text)) and "python" not in command[0]
        else "pytest" in environment.modules
    )
    if (command or _TOX.search(text)) and not is_there:
        raise PrerequisiteError(
            f"the tests of {instance.instance_id} can't run in {environment.prefix}",
            why="it has no pytest",
            fix=f"{environment.executable} -m pip install pytest, in the version that the task's "
            "repository asks for",
        )
