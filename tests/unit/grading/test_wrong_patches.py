"""Patches that resolve nothing: they apply, they do what their name says, and no more."""

from __future__ import annotations

import ast
import difflib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.grading import wrong_patches
from swe_rollout.grading.wrong_patches import (
    Wrong,
    changed_lines,
    with_bodies,
)
from swe_rollout.sandbox.patch_text import file_diff
from swe_rollout.types.instance import Expected, Instance
from unit.grading.project_parts import git

SOURCE = '''\
"""Sums."""

LIMIT = 3


def add(a, b):
    """Add."""
    # the bug
    return a - b


class Total:
    @property
    def value(self): return self.kept

    async def over(self, items):
        @wrapped
        def one(item):
            return item + LIMIT

        return [one(item) for item in items]
'''
RETURN = "return None"


def changed(old: str, new: str, path: str = "sums.py") -> str:
    """The diff between two texts, as git writes it."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return f"diff --git a/{path} b/{path}\n" + "".join(lines)


@pytest.mark.parametrize(
    ("line", "functions"),
    [
        ("    return a - b\n", ["add"]),
        ("    # the bug\n", ["add"]),
        ("    def value(self): return self.kept\n", ["value"]),
        ("            return item + LIMIT\n", ["one"]),
        ("        return [one(item) for item in items]\n", ["over"]),
        ("LIMIT = 3\n", []),
    ],
)
def test_only_the_innermost_function_around_a_change_returns_a_constant(
    line: str, functions: list[str]
) -> None:
    diff = changed(SOURCE, SOURCE.replace(line, f"{line.rstrip()} or 1\n"))
    new = with_bodies(SOURCE, changed_lines(diff.encode()), RETURN)
    assert bool(new) == bool(functions)
    constant = [
        node.name
        for node in ast.walk(ast.parse(new))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.unparse(node.body[0]) == RETURN
    ]
    assert constant == functions
    kept = [each for each in SOURCE.splitlines() if "return" not in each and '"""Add' not in each]
    assert not new or set(kept) - set(new.splitlines()) <= {
        "    # the bug",
        "        @wrapped",
        "        def one(item):",
        "    def value(self): return self.kept",
    }


def test_an_insertion_changes_the_function_of_the_line_before_it() -> None:
    diff = changed(SOURCE, SOURCE.replace("    # the bug\n", "    # the bug\n    a = a or 0\n"))
    assert changed_lines(diff.encode()) == {SOURCE.splitlines().index("    # the bug") + 1}
    bare = b"@@ -3,0 +4,2 @@\n+x\n+y\n@@ -9 +11,0 @@\n-z\n"
    assert changed_lines(bare) == {3, 9}


@pytest.mark.parametrize(
    "text",
    ["def f(:\n", "def f(): pass\0", "(" * 5000 + ")" * 5000, "x = 1\n", ""],
)
def test_what_can_not_be_parsed_or_has_no_function_gets_no_patch(text: str) -> None:
    assert with_bodies(text, {1}, RETURN) == ""


def test_a_file_of_many_functions_that_all_change_takes_no_longer_than_it_is_long() -> None:
    text = "def f():0\n" * 50_000
    new = with_bodies(text, range(1, 50_001), RETURN)
    assert new == "def f():return None\n" * 50_000


def test_a_hunk_that_lies_about_its_lines_is_read_to_its_end_and_no_further() -> None:
    lying = b"@@ -999999999,999999999 +1,999999999 @@\n" + b"-x\n" * 3
    assert changed_lines(lying) == {999999999, 1000000000, 1000000001}
    assert with_bodies(SOURCE, changed_lines(lying), RETURN) == ""


def test_bytes_count_and_not_characters() -> None:
    text = "def f(a='ü€'): return 'äöü' + a\n"
    assert with_bodies(text, {1}, RETURN) == "def f(a='ü€'): return None\n"


_texts = st.text(st.sampled_from("ab\n\r\f\u2028ü "), max_size=30)


@given(old=st.none() | _texts, new=st.none() | _texts)
def test_the_diff_of_a_file_applies_whatever_its_lines_end_with(
    tmp_path_factory: pytest.TempPathFactory, old: str | None, new: str | None
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    git(folder, "init", "--quiet")
    path = folder / "a b.py"
    if old is not None:
        path.write_bytes(old.encode())
    diff = file_diff("a b.py", old, new)
    assert (diff == "") == (old == new)
    if diff:
        git(folder, "apply", "--whitespace=nowarn", stdin=diff)
    assert (path.read_bytes().decode() if path.exists() else None) == new


TASK = Instance(
    instance_id="one",
    problem_statement="fix it",
    image="image:1",
    gold_patch=changed(SOURCE, SOURCE.replace("a - b", "a + b")),
    test_patch=changed("", "def test_sum(): pass\n", "tests/test_sums.py"),
    expected=Expected(("tests/test_sums.py::test_sum",), ("tests/test_old.py::test",)),
)
FILES = {"sums.py": SOURCE, "tests/test_old.py": "def test(): pass\n", "conftest.py": "X = 1\n"}


def made(files: dict[str, str], task: Instance = TASK) -> dict[Wrong, str]:
    tests = wrong_patches._test_paths(task)
    sources = wrong_patches._source_paths(task)
    found = wrong_patches._made(task, files, tests, sources)
    assert all(bool(each.text) != bool(each.why_none) for each in found)
    return {each.kind: each.text for each in found}


def test_each_kind_changes_what_it_is_named_for() -> None:
    patches = made(FILES)
    assert set(patches) == set(Wrong)
    assert "deleted file mode 100644\n--- a/tests/test_old.py" in patches[Wrong.DELETE_TESTS]
    assert "+    return None\n" in patches[Wrong.CONSTANT_RETURN]
    assert "a + b" not in patches[Wrong.CONSTANT_RETURN], "nothing of the fix"
    assert "+++ b/conftest.py" in patches[Wrong.ALL_SKIPPED]
    assert "+++ b/sums.py" in patches[Wrong.ALL_SKIPPED]
    assert "SkipTest" in patches[Wrong.SKIPPED_CALLS]


def test_they_apply_to_the_base(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    for patch in made(FILES).values():
        git(tmp_path, "apply", "--check", stdin=patch)


def test_a_base_without_such_files_has_no_such_patch() -> None:
    patches = made({})
    assert [kind for kind, text in patches.items() if text] == [Wrong.ALL_SKIPPED]
    other = Instance(
        instance_id="js", problem_statement="x", image="i", gold_patch=changed("a\n", "b\n", "a.js")
    )
    assert not any(made({"a.js": "a\n"}, other).values())


@pytest.mark.parametrize(
    "path", ["../../etc/passwd", "/etc/passwd", "a/../b.py", ".git/config", 'a"b.py', "a\x1bb.py"]
)
def test_paths_of_a_row_do_not_leave_the_repository(path: str) -> None:
    assert wrong_patches._plain([path, "a.py", "a.py"]) == ("a.py",)
