"""Twins of a task's tests: the same ids, bodies that must fail. Pure.

A run that resolves a task is believed only if its twins fail. In one twin, each test fails at the
end of its body: a patch that forges reports, or ends the process early, passes it. The other twin
expects other constants: a patch that forges values, or recognises the first twin, passes that. What
each twin shows under the gold patch is measured and required of every patch: the status of each
test, the line of its failure, and the value there that only working code computes.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from swe_rollout.grading.twin_edits import Edit, Source, TestFunction, changed, failing
from swe_rollout.types.instance import Expected
from swe_rollout.types.verdict import TestStatus

_MOST_KEPT: Final = 50
"""The most tests to keep passing that get twins; all tests to fix get them."""
_MOST_FILES: Final = 20
"""The most files of tests to keep passing, beside the files of the hidden tests."""
_FAILED: Final = frozenset({TestStatus.FAILED, TestStatus.ERROR})
_SHOWN: Final = 3
_ASSERTION: Final = re.compile(r"^(?:E .*|\w*Error: .*)$", re.MULTILINE)


class TwinKind(StrEnum):
    """What makes a twin fail."""

    ENDING = "ending"
    """Each test fails at the end of its body."""
    CONSTANTS = "constants"
    """Each test expects other constants."""


@dataclass(frozen=True, slots=True)
class TestFile:
    """The text of a hidden test file, and of the same file in the base."""

    __test__ = False

    path: str
    text: str
    base: str = ""
    """The text in the base; empty where the base has no such file."""

    @property
    def is_new(self) -> bool:
        """Whether it differs from the base, so the agent could not compare it."""
        return self.text != self.base


@dataclass(frozen=True, slots=True)
class Twin:
    """Test files that replace the real ones."""

    kind: TwinKind
    files: Mapping[str, str]
    """The text of each file by path."""
    token: str
    """The message with which tests fail at the end of their bodies."""
    witnesses: Mapping[tuple[str, int], frozenset[str]] = field(default_factory=dict)
    """The texts that only a right result shows, by path and line."""
    bases: Mapping[str, str] = field(default_factory=dict)
    """The text of each file in the base."""

    def traits(self, failure: str) -> frozenset[str]:
        """Return what the text of a failure says about the code under test."""
        if self.kind is TwinKind.ENDING:
            return frozenset({"the end of its body"} if self.token in failure else ())
        found = set()
        for path in self.files:
            place = re.search(rf'{re.escape(path)}(?:", line |:)(\d+)', failure)
            if place is None:
                continue
            line = int(place[1])
            found.add(f"line {line}")
            compared = "\n".join(_ASSERTION.findall(failure))
            for text in self.witnesses.get((path, line), ()):
                if text in compared:
                    found.add(f"the value at line {line}")
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a run of a twin showed for one test."""

    status: TestStatus
    traits: frozenset[str] = frozenset()


def make_twins(files: Iterable[TestFile], expected: Expected, seed: str) -> tuple[Twin, ...]:
    """Make the twins of these test files; leave out a kind that would change nothing."""
    chance = _chance(seed)
    token = f"{chance.getrandbits(40):010x}"
    fixed, kept = _names(expected.fail_to_pass), _names(_watched(expected, seed))
    ending: dict[str, str] = {}
    constants: dict[str, str] = {}
    witnesses: dict[tuple[str, int], frozenset[str]] = {}
    bases: dict[str, str] = {}
    for file in files:
        if not file.path.endswith(".py"):
            continue
        source = Source.of(file.text)
        bases[file.path] = file.base
        tests = [each for each in source.functions if _is_named(each, fixed | kept)]
        if tests:
            ending[file.path] = source.edited([failing(source, each, token) for each in tests])
        new = _new(source, file.base, fixed) if file.is_new else []
        edits = [edit for test in new for edit in changed(source, test, chance)]
        if edits:
            constants[file.path] = source.edited(edits)
            witnesses |= _witnesses(file.path, edits)
    made = (
        Twin(TwinKind.ENDING, ending, token, bases=bases),
        Twin(TwinKind.CONSTANTS, constants, token, witnesses, bases),
    )
    return tuple(twin for twin in made if twin.files)


def other_files(expected: Expected, seed: str) -> tuple[str, ...]:
    """Return further files to twin, taken from the ids of tests to keep passing."""
    paths = dict.fromkeys(
        test.partition("::")[0] for test in _watched(expected, seed) if ".py::" in test
    )
    return tuple(paths)[:_MOST_FILES]


def _watched(expected: Expected, seed: str) -> list[str]:
    """Choose the tests to keep passing that get twins, at most `_MOST_KEPT`, by `seed`."""
    kept = list(expected.pass_to_pass)
    return _chance(seed).sample(kept, min(len(kept), _MOST_KEPT))


def _chance(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 (a choice that can be repeated, no secret)


@dataclass(frozen=True, slots=True)
class Gold:
    """What one twin showed under the gold patch."""

    twin: Twin
    shown: Mapping[str, Shown]

    @property
    def telling(self) -> frozenset[str]:
        """Tests that fail in the twin under the gold patch; other tests are no evidence."""
        return frozenset(test for test, shown in self.shown.items() if shown.status in _FAILED)

    def problems(self, seen: Mapping[str, Shown], expected: Expected) -> tuple[str, ...]:
        """Return each way in which a patch's run of the twin differs from that of working code."""
        return tuple(self._problems(seen, expected))

    def _problems(self, seen: Mapping[str, Shown], expected: Expected) -> Iterator[str]:
        fixed = frozenset(expected.fail_to_pass)
        wrong = [
            (test, problem)
            for test in (*expected.fail_to_pass, *expected.pass_to_pass)
            if test in self.telling
            for problem in [self._problem(test, seen.get(test), strict=test in fixed)]
            if problem
        ]
        for test, problem in wrong[:_SHOWN]:
            yield f"{test}: {problem}"
        if len(wrong) > _SHOWN:
            yield f"and {len(wrong) - _SHOWN} more tests like these"

    def _problem(self, test: str, seen: Shown | None, *, strict: bool) -> str:
        gold = self.shown[test]
        status = TestStatus.MISSING if seen is None else seen.status
        passes = status in (TestStatus.PASSED, TestStatus.XFAIL)
        if passes or (strict and status is not gold.status):
            return f"{status.value} in the twin that changes {_WORDS[self.twin.kind]}"
        missing = gold.traits - (seen.traits if seen is not None else frozenset())
        if strict and missing:
            names = ", ".join(sorted(missing))
            return f"fails in the twin that changes {_WORDS[self.twin.kind]}, but not for {names}"
        return ""


_WORDS: Final = {TwinKind.ENDING: "the ends of tests", TwinKind.CONSTANTS: "what tests expect"}


def _names(tests: Iterable[str]) -> frozenset[str]:
    """Return what these ids may call their functions: by name, or by docstring title."""
    found = set()
    for test in tests:
        found.add(test)
        if "::" in test:
            found.add(test.partition("[")[0].rpartition("::")[2])
        elif words := test.split(maxsplit=1):
            found.add(words[0])
    return frozenset(found)


def _is_named(function: TestFunction, names: frozenset[str]) -> bool:
    if function.name in names:
        return True
    lines = (ast.get_docstring(function) or "").splitlines()
    return bool(lines) and lines[0].strip() in names


def _new(source: Source, base: str, names: frozenset[str]) -> list[TestFunction]:
    """Return the tests that the base lacks; a patch could compare the others with the base."""
    named = [each for each in source.functions if _is_named(each, names)]
    return [each for each in named if source.part(each) not in base] or named


def _witnesses(path: str, edits: Iterable[Edit]) -> dict[tuple[str, int], frozenset[str]]:
    found: dict[tuple[str, int], frozenset[str]] = {}
    for edit in edits:
        if edit.witness:
            place = path, edit.line
            found[place] = found.get(place, frozenset()) | {edit.witness}
    return found
