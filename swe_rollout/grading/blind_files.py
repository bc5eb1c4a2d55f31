"""Make the blind form of test files: holes in some tests, failures in the others. Pure."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files as resources
from typing import Final

from swe_rollout.grading.edits import Edit, Source, TestFunction, changed, failing
from swe_rollout.grading.holes import HOLE, Hole, find_holes
from swe_rollout.types.instance import Expected

_MOST_KEPT: Final = 50
"""The most tests to keep passing that are watched; all tests to fix are."""
_MOST_FILES: Final = 20
"""The most files of tests to keep passing, beside the files of the hidden tests."""


@dataclass(frozen=True, slots=True)
class TestFile:
    """The text of a hidden test file, and of the same file in the base."""

    __test__ = False

    path: str
    text: str
    base: str | None = None
    """The text in the base; None where the base has no such file."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A test function and how it changes."""

    tests: frozenset[str]
    """The ids of the expected tests that it may be."""
    holes: Mapping[int, Hole]
    """By number; empty if the test is made to fail instead."""
    edits: tuple[Edit, ...]
    """The edits by which it fails."""


@dataclass(frozen=True, slots=True)
class BlindFile:
    source: Source
    base: str | None
    watched: tuple[Watched, ...]

    def text(self, records: str) -> str:
        """Return the file for a run that writes its records to the path `records`."""
        edits = [edit for each in self.watched for edit in each.edits if not each.holes]
        holes = [pair for each in self.watched for pair in each.holes.items()]
        edits += [edit for number, hole in holes for edit in hole.edits(number)]
        text = self.source.edited(edits)
        return _with_prelude(text, records) if holes else text


def make_files(files: Iterable[TestFile], expected: Expected, seed: str) -> dict[str, BlindFile]:
    """Take out what these test files expect of the tests to fix, and make other tests fail."""
    chance = _chance(seed)
    token = f"{chance.getrandbits(40):010x}"
    to_fix = _names(expected.fail_to_pass)
    kept = _names(_sample(expected, seed))
    made: dict[str, BlindFile] = {}
    numbers = 0
    for file in files:
        if not file.path.endswith(".py"):
            continue
        source = Source.of(file.text)
        watched = []
        for function in source.functions:
            tests = _tests_of(function, to_fix)
            if not tests:
                if tests := _tests_of(function, kept):
                    watched.append(Watched(tests, {}, (failing(source, function, token),)))
                continue
            holes = find_holes(source, function, file.base or "")
            numbered = dict(enumerate(holes, start=numbers))
            numbers += len(numbered)
            edits = changed(source, function, chance) or [failing(source, function, token)]
            watched.append(Watched(tests, numbered, tuple(edits)))
        if watched:
            made[file.path] = BlindFile(source, file.base, tuple(watched))
    return made


def other_files(expected: Expected, seed: str) -> tuple[str, ...]:
    """Return further files to edit, taken from the ids of tests to keep passing."""
    paths = dict.fromkeys(
        test.partition("::")[0] for test in _sample(expected, seed) if ".py::" in test
    )
    return tuple(paths)[:_MOST_FILES]


def _sample(expected: Expected, seed: str) -> list[str]:
    """Choose the tests to keep passing that are watched, at most `_MOST_KEPT`, by `seed`."""
    kept = list(expected.pass_to_pass)
    return _chance(seed).sample(kept, min(len(kept), _MOST_KEPT))


def _chance(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 (a choice that can be repeated, no secret)


def function_of(test: str) -> str:
    """Return the id of a test without its parameters."""
    return test.partition("[")[0]


def _names(tests: Iterable[str]) -> dict[str, set[str]]:
    """Return the tests by what their functions may be called: by name, or by docstring title."""
    found: dict[str, set[str]] = defaultdict(set)
    for test in tests:
        found[test].add(test)
        if "::" in test:
            found[function_of(test).rpartition("::")[2]].add(test)
        elif words := test.split(maxsplit=1):
            found[words[0]].add(test)
    return found


def _tests_of(function: TestFunction, names: Mapping[str, set[str]]) -> frozenset[str]:
    lines = (ast.get_docstring(function) or "").splitlines()
    titles = [function.name, *(line.strip() for line in lines[:1])]
    return frozenset(test for title in titles for test in names.get(title, ()))


def _with_prelude(text: str, records: str) -> str:
    """Define the holes' class before the first statement that may be an expectation."""
    code = (resources("swe_rollout.grading") / "recorder.py").read_text()
    line = f"{HOLE} = dict(); exec({code!r}, {HOLE}); {HOLE}['RECORDS'] = {records!r}; "
    line += f"{HOLE} = {HOLE}['hole']"
    lines = text.split("\n")
    at = 0
    for node in ast.parse(text).body:
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(each.lineno for each in decorators)])
        match node:
            case ast.Expr(value=ast.Constant()) | ast.ImportFrom(module="__future__"):
                at = node.end_lineno or first
            case _ if first <= at:
                at = node.end_lineno or first
            case _:
                at = first - 1
                break
    return "\n".join([*lines[:at], line, *lines[at:]])
