"""Which changes of a patch take no part in its grading."""

from __future__ import annotations

import pytest

from swe_rollout.grading.steering import IMPORTED, Task

TASK = Task(
    gold=frozenset({"src/pkg/a.py", "tox.ini"}),
    hidden=frozenset({"tests/sub/test_a.py"}),
    commands="python -m pytest tests/sub/test_a.py\n./bin/check --all",
)


def undone(*touched: str, task: Task = TASK) -> list[str]:
    return [each.path for each in task.undone(touched)]


@pytest.mark.parametrize(
    "path",
    [
        "conftest.py",
        "src/conftest.py",
        "pytest.ini",
        "setup.cfg",
        "setup.py",
        "a/sitecustomize.py",
        "usercustomize.pyc",
        "x/y.pth",
        ".env",
        "pytest.env",
        "pkg.egg-info/entry_points.txt",
        "bin/check",
        "src/pkg/b.so",
        "src/pkg/b.cpython-311-x86_64-linux-gnu.so",
        "src/pkg/__pycache__/b.cpython-311.pyc",
        "tests/sub/test_a.py",
        "tests/helper.py",
        "tests/__init__.py",
        "tests",
    ],
)
def test_what_steers_tests_or_is_compiled_goes_back(path: str) -> None:
    assert undone(path) == [path]


@pytest.mark.parametrize(
    "path",
    ["src/pkg/a.py", "src/pkg/b.py", "tox.ini", "README.md", "testsuite.py", "src/pkg/tests.py"],
)
def test_what_a_fix_may_change_stays(path: str) -> None:
    assert undone(path) == []


def test_a_package_beside_a_hidden_test_goes_as_a_whole() -> None:
    task = Task(frozenset(), frozenset({"pkg/test_b.py"}), "pytest")
    assert undone("pkg/test_b/__init__.py", "pkg/test_b/more.py", task=task) == ["pkg/test_b"] * 2


def test_a_folder_that_holds_the_fix_is_no_folder_of_tests() -> None:
    task = Task(
        frozenset({"numpy/testing/utils.py"}),
        frozenset({"numpy/testing/tests/test_utils.py"}),
        "pytest",
    )
    touched = ("numpy/testing/utils.py", "numpy/testing/more.py", "numpy/testing/tests/x.py")
    assert undone(*touched, task=task) == ["numpy/testing/tests/x.py"]


def test_modules_that_may_stand_in_for_others_are_named_with_their_folders() -> None:
    touched = ("pytest.py", "src/json/__init__.py", "src/pkg/a.py", "a/pluggy.abi3.so", "x.txt")
    found = {(each.folder, each.name, each.path) for each in TASK.shadows(touched)}
    assert found == {
        ("", "pytest", "pytest.py"),
        ("src", "json", "src/json"),
        ("a", "pluggy", "a/pluggy.abi3.so"),
    }


def test_names_of_runners_and_of_the_standard_library_are_known() -> None:
    assert {"pytest", "pluggy", "json", "difflib", "sitecustomize"} <= IMPORTED
    assert "semver" not in IMPORTED
