"""Fixes of unusual forms resolve their task; their neighbours, which steer the tests, do not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from swe_rollout.grading.grader import Grader
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.instance import Evaluation, Expected
from swe_rollout.types.instance import Instance as Task
from swe_rollout.types.verdict import VerdictStatus
from unit.grading.project_parts import Project, diff, git, repository

WRONG = "def add(a, b):\n    return 'none'\n"
RIGHT = "def add(a, b):\n    return f'{a + b} in all'\n"
HIDDEN = """\
import unittest
from app.calc import add
from mod import twice

class T(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(add(1, 2), "3 in all")
        self.assertEqual(twice(2), 4)
"""
BASE: dict[str, str] = {
    "app/calc.py": WRONG,
    "mod.py": "def twice(a):\n    return a + a\n",
    "test_calc.py": "",
    "lib/default.env": "A=1\n",
}
FORMS: dict[str, tuple[dict[str, str | None], str]] = {
    "as in the gold patch": ({"app/calc.py": RIGHT}, ""),
    "a module that becomes a package": (
        {
            "app/calc.py": RIGHT,
            "mod.py": None,
            "mod/__init__.py": "from mod.inner import twice\n",
            "mod/inner.py": "def twice(a):\n    return 2 * a\n",
        },
        "",
    ),
    "a new module named as one of the standard library's, in a folder that is a package": (
        {"app/calc.py": f"from app.types import NOTHING\n{RIGHT}", "app/types.py": "NOTHING = 0\n"},
        "",
    ),
    "data of a package": ({"app/calc.py": RIGHT, "lib/default.env": "A=2\n"}, ""),
    "a name with a tab": ({"app/calc.py": RIGHT, "docs/a\tb.py": "x = 1\n"}, ""),
    "a module in place of one that tests import": (
        {"app/calc.py": RIGHT, "unittest.py": "def main(): pass\n"},
        "adds unittest.py, which would be imported in place of another; undone",
    ),
    "a package in place of a module that is still there": (
        {"app/calc.py": RIGHT, "mod/__init__.py": "def twice(a):\n    return 4\n"},
        "adds mod, which would be imported in place of another; undone",
    ),
}


@dataclass(frozen=True, slots=True)
class Place:
    folder: Path
    project: Project


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    if refusal := bubblewrap.refusal():
        pytest.skip(refusal)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = repository(tmp_path / "images", BASE)
    task = Task(
        instance_id="demo__calc-1",
        problem_statement="add() returns none",
        image="test/calc:1",
        base_commit=git(folder, "rev-parse", "HEAD").strip(),
        gold_patch=diff(folder, **{"app/calc.py": RIGHT}),
        test_patch=diff(folder, **{"test_calc.py": HIDDEN}),
        evaluation=Evaluation(commands=("python3 -B -m unittest -v test_calc",)),
        log_parser="django",
        expected=Expected(("test_sum (test_calc.T.test_sum)",), ()),
    )
    provider = LocalProvider(LocalSandbox(images=str(tmp_path / "images")))
    yield Place(folder, Project(task, Grader(provider)))
    await provider.aclose()


@pytest.mark.parametrize("form", FORMS)
async def test_a_fix_resolves_its_task_in_whatever_form(place: Place, form: str) -> None:
    files, finding = FORMS[form]
    verdict = await place.project.grade(diff(place.folder, **files))
    assert (verdict.status, "\n".join(verdict.integrity)) == (VerdictStatus.RESOLVED, finding)
