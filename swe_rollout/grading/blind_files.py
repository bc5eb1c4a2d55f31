"""Make the blind form of test files: holes in some tests, failures in the others. Pure."""

from __future__ import annotations

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files as resources
from typing import Final

from swe_rollout.grading.edits import HOLE, Edit, Source, TestFunction, changed, failing
from swe_rollout.grading.holes import Hole, find_holes
from swe_rollout.grading.languages.recorders import with_recorder
from swe_rollout.grading.languages.syntax import ForeignTest, read_tests
from swe_rollout.grading.languages.table import Language, language_of
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
    language: Language | None = None
    """None for Python."""

    def text(self, records: str) -> str:
        """Return the file for a run that writes its records to the path `records`."""
        edits = [edit for each in self.watched for edit in each.edits if not each.holes]
        holes = {number: hole for each in self.watched for number, hole in each.holes.items()}
        edits += [edit for number, hole in holes.items() for edit in hole.edits(number)]
        text = self.source.edited(edits)
        if not holes:
            return text
        if self.language is None:
            return _with_prelude(text, records)
        return with_recorder(text, records, self.language, name=f"{HOLE}_{min(holes)}")


def may_be_blind(path: str) -> bool:
    """Return whether tests in a file of this name can run blind."""
    return path.endswith(".py") or language_of(path) is not None


def make_files(files: Iterable[TestFile], expected: Expected, seed: str) -> dict[str, BlindFile]:
    """Take out what these test files expect of the tests to fix, and make other tests fail."""
    chance = _chance(seed)
    wanted = _Wanted(expected, seed, f"{chance.getrandbits(40):010x}")
    made: dict[str, BlindFile] = {}
    numbers = 0
    for file in files:
        if (language := language_of(file.path)) is not None:
            source = Source(file.text, ())
            found = list(
                wanted.of_tests(read_tests(file.text, file.base or "", language), language)
            )
        elif file.path.endswith(".py"):
            source = Source.of(file.text)
            found = list(wanted.of_functions(source, file.base or "", chance))
        else:
            continue
        watched = []
        for tests, holes, edits in found:
            watched.append(Watched(tests, dict(enumerate(holes, start=numbers)), tuple(edits)))
            numbers += len(holes)
        if watched:
            made[file.path] = BlindFile(source, file.base, tuple(watched), language)
    return made


_Found = tuple[frozenset[str], tuple[Hole, ...], Iterable[Edit]]
"""Ids that a test may have, what can be taken out of it, and how it fails."""


class _Wanted:
    """Chooses the tests to watch: all to fix, and some to keep passing."""

    def __init__(self, expected: Expected, seed: str, token: str) -> None:
        self._kept_ids = _sample(expected, seed)
        self._to_fix, self._kept = _names(expected.fail_to_pass), _names(self._kept_ids)
        self._expected, self._token = expected, token

    def of_functions(self, source: Source, base: str, chance: random.Random) -> Iterator[_Found]:
        for function in source.functions:
            if tests := _tests_of(function, self._to_fix):
                edits = changed(source, function, chance)
                yield (
                    tests,
                    find_holes(source, function, base),
                    edits or [failing(source, function, self._token)],
                )
            elif tests := _tests_of(function, self._kept):
                yield tests, (), [failing(source, function, self._token)]

    def of_tests(self, tests: Iterable[ForeignTest], language: Language) -> Iterator[_Found]:
        to_fix, kept = _Titles(self._expected.fail_to_pass), _Titles(self._kept_ids)
        for test in tests:
            edits = [test.failing(language, self._token)]
            if ids := to_fix.of(test.title):
                yield ids, test.holes, edits
            elif ids := kept.of(test.title):
                yield ids, (), edits


class _Titles:
    """Finds tests whose ids end with a title: the names of suites and files stand before."""

    def __init__(self, tests: Iterable[str]) -> None:
        self._by_word: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for test in tests:
            self._by_word[_last_word(test)].append((test.rstrip(), test))

    def of(self, title: str) -> frozenset[str]:
        found = self._by_word.get(_last_word(title), ()) if title else ()
        return frozenset(
            test
            for shown, test in found
            if shown.endswith(title) and not re.match(r"\w", shown[: -len(title)][-1:])
        )


def _last_word(text: str) -> str:
    words: list[str] = re.findall(r"\w+", text)
    return words[-1] if words else ""


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
            # `test_x (module.Case)`, or `module.Case.test_x`
            found[words[0].rpartition(".")[2]].add(test)
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
