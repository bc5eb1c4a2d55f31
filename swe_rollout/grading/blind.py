"""Blind tests: a task's tests without the values that they expect. Pure.

A patch that resolves the task is tested once more, blind. An object stands in place of each
expected value; it records what it is compared with and says that they are equal. The records are
compared outside of the sandbox, so nobody has to trust them: code of the patch may forge whatever
it likes there, but it does not know the value. Tests without such values fail by an edit instead,
so who reports them as passed is found out.
"""

from __future__ import annotations

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files as resources
from typing import Final

from swe_rollout.grading.edits import Edit, Source, TestFunction, changed, failing
from swe_rollout.grading.holes import Hole, Value, find_holes
from swe_rollout.grading.odds import odds
from swe_rollout.types.instance import Expected
from swe_rollout.types.verdict import TestStatus

MAX_RECORDS_BYTES: Final = 8 << 20
_MOST_RECORDS: Final = 20_000
"""The most different records that are read; a run with more is wrong."""
_MOST_KEPT: Final = 50
"""The most tests to keep passing that are watched; all tests to fix are."""
_MOST_FILES: Final = 20
"""The most files of tests to keep passing, beside the files of the hidden tests."""
_FAILED: Final = frozenset({TestStatus.FAILED, TestStatus.ERROR})
_PASSED: Final = frozenset({TestStatus.PASSED, TestStatus.XFAIL})
_SHOWN: Final = 3
_UNPLAIN: Final = "?"
_RECORD: Final = re.compile(
    r"(\d{1,7}) (\?|-?\d{1,4300}|-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf)|nan"
    r"|b?'(?:[^'\\]|\\.)*+'|b?\"(?:[^\"\\]|\\.)*+\")"
)
_HOLE: Final = "_swe_rollout_hole"


@dataclass(frozen=True, slots=True)
class TestFile:
    """The text of a hidden test file, and of the same file in the base."""

    __test__ = False

    path: str
    text: str
    base: str = ""
    """The text in the base; empty where the base has no such file."""


@dataclass(frozen=True, slots=True)
class _Watched:
    """A test function and how it changes."""

    tests: frozenset[str]
    """The ids of the expected tests that it may be."""
    holes: Mapping[int, Hole]
    """By number; empty if the test is made to fail instead."""
    edits: tuple[Edit, ...]
    """The edits by which it fails."""


@dataclass(frozen=True, slots=True)
class _BlindFile:
    source: Source
    base: str
    watched: tuple[_Watched, ...]

    def text(self, records: str) -> str:
        """Return the file for a run that writes its records to the path `records`."""
        edits = [edit for each in self.watched for edit in each.edits if not each.holes]
        holes = [pair for each in self.watched for pair in each.holes.items()]
        edits += [
            Edit(hole.start, hole.end, f"{_HOLE}({number}{chr(10) * hole.lines})")
            for number, hole in holes
        ]
        text = self.source.edited(edits)
        return _with_prelude(text, records) if holes else text


@dataclass(frozen=True, slots=True)
class Blind:
    """The test files of a blind run."""

    files: Mapping[str, _BlindFile]

    def texts(self, records: str) -> dict[str, str]:
        """Return each file by path, for a run that writes its records to the path `records`."""
        return {path: file.text(records) for path, file in self.files.items()}

    @property
    def bases(self) -> dict[str, str]:
        """The text of each file in the base, by path."""
        return {path: file.base for path, file in self.files.items()}

    @property
    def holes(self) -> dict[int, Hole]:
        """All holes by number."""
        return {number: hole for each in self._watched for number, hole in each.holes.items()}

    @property
    def _watched(self) -> Iterator[_Watched]:
        return (each for file in self.files.values() for each in file.watched)

    def telling(self, base: BlindRun) -> frozenset[int]:
        """Return the holes whose values an agent can neither read in the base nor get from it.

        `base` is a run of the base itself.
        """
        return frozenset(
            number
            for number, hole in self.holes.items()
            if hole.is_new and not base.is_right(number, hole.value)
        )

    def confirmed(self, gold: BlindRun, telling: frozenset[int]) -> Blind:
        """Return what stays out after a run of the gold patch: where its record is the value.

        A test that failed, or has no telling hole, keeps none and is made to fail instead.
        """
        failed = {_function(test) for test, status in gold.statuses.items() if status in _FAILED}
        passed = {_function(test) for test, status in gold.statuses.items() if status in _PASSED}

        def kept(each: _Watched) -> _Watched:
            names = {_function(test) for test in each.tests}
            right = {n: hole for n, hole in each.holes.items() if gold.is_right(n, hole.value)}
            sound = names & passed and not names & failed and telling.intersection(right)
            return replace(each, holes=right if sound else {})

        return Blind(
            {
                path: replace(file, watched=tuple(map(kept, file.watched)))
                for path, file in self.files.items()
            }
        )

    def watches(self, test: str) -> bool:
        """Return whether a test has a hole."""
        return _function(test) in {
            _function(name) for each in self._watched if each.holes for name in each.tests
        }


@dataclass(frozen=True, slots=True)
class BlindRun:
    """What a blind run showed."""

    statuses: Mapping[str, TestStatus]
    records: Mapping[int, frozenset[str]]
    """What each hole was compared with, as literals."""

    @classmethod
    def of(cls, statuses: Mapping[str, TestStatus], data: bytes) -> BlindRun:
        """Read the records that a run left behind."""
        found: dict[int, set[str]] = defaultdict(set)
        lines = dict.fromkeys(data.decode("ascii", "replace").split("\n"))
        for count, line in enumerate(lines):
            record = _RECORD.fullmatch(line)
            if record is None and not line:
                continue
            if record is None or count > _MOST_RECORDS:
                # Somebody else has written this; what is missing is not known.
                return cls(statuses, {})
            found[int(record[1])].add(record[2])
        return cls(statuses, {number: frozenset(texts) for number, texts in found.items()})

    def is_right(self, number: int, value: Value) -> bool:
        """Return whether a hole was compared, and with nothing but this value."""
        texts = self.records.get(number)
        return bool(texts) and all(_equals(text, value) for text in texts or ())

    def is_unplain(self, number: int) -> bool:
        """Return whether a hole was compared with what can't be recorded, such as an object."""
        return _UNPLAIN in self.records.get(number, ())


def _equals(text: str, value: Value) -> bool:
    if text in (_UNPLAIN, "nan") or text.endswith("inf"):
        return False
    try:
        return bool(ast.literal_eval(text) == value)
    except (ValueError, SyntaxError):
        return False


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a blind run shows of working code, as the gold patch's run did."""

    blind: Blind
    passing: frozenset[str] = frozenset()
    """Tests with holes that pass, by their ids in the blind run."""
    failing: Mapping[str, TestStatus] = field(default_factory=dict)
    """Expected tests without holes that fail, and how."""
    odds: float = 1.0
    """The odds of guessing all values that the base does not show."""

    @classmethod
    def of(
        cls, blind: Blind, gold: BlindRun, expected: Expected, telling: frozenset[int], issue: str
    ) -> Expectation:
        """Read a run of the gold patch; everybody knows the text of the issue."""
        statuses = gold.statuses
        passing = {t for t, s in statuses.items() if s in _PASSED and blind.watches(t)}
        wanted = dict.fromkeys((*expected.fail_to_pass, *expected.pass_to_pass))
        failing = {
            test: statuses[test]
            for test in wanted
            if statuses.get(test) in _FAILED and not blind.watches(test)
        }
        values = [hole.value for number, hole in blind.holes.items() if number in telling]
        visible = "\n".join([issue, *blind.texts("").values()])
        return cls(blind, frozenset(passing), failing, odds(values, visible))

    def watched(self, expected: Expected) -> frozenset[str]:
        """Return the tests to fix that this run can tell from forgeries."""
        return frozenset(
            test
            for test in expected.fail_to_pass
            if test in self.failing or self.blind.watches(test)
        )

    def problems(self, seen: BlindRun, expected: Expected) -> tuple[str, ...]:
        """Return each way in which a patch's run differs from that of working code."""
        found = list(self._problems(seen, frozenset(expected.fail_to_pass)))
        more = (f"and {len(found) - _SHOWN} more like these",) if found[_SHOWN:] else ()
        return (*found[:_SHOWN], *more)

    def unjudged(self, seen: BlindRun) -> str:
        """Say where an object of the patch's was compared, whose equality only it knows; or empty.

        It may be honest: it is no evidence of anything.
        """
        values = (hole.value for n, hole in self.blind.holes.items() if seen.is_unplain(n))
        found = next(values, None)
        return "" if found is None else f"an object is compared with {_short(found)}"

    def _problems(self, seen: BlindRun, to_fix: frozenset[str]) -> Iterator[str]:
        for test in sorted(self.passing):
            status = seen.statuses.get(test, TestStatus.MISSING)
            if status not in _PASSED:
                yield f"{test} passes, but is {status.value} where it can't see what is expected"
        for number, hole in sorted(self.blind.holes.items()):
            if number not in seen.records:
                yield f"{_short(hole.value)} is not computed where it can't be seen"
            elif not (seen.is_right(number, hole.value) or seen.is_unplain(number)):
                yield f"another value than {_short(hole.value)} is computed where it can't be seen"
        for test, gold in self.failing.items():
            status = seen.statuses.get(test, TestStatus.MISSING)
            if status in _PASSED or (test in to_fix and status not in _FAILED):
                yield f"{test} is {status.value} where it has to be {gold.value}"


def _short(value: Value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"  # noqa: PLR2004 (a line)


def make_blind(files: Iterable[TestFile], expected: Expected, seed: str) -> Blind:
    """Take out what these test files expect of the tests to fix, and make other tests fail."""
    chance = _chance(seed)
    token = f"{chance.getrandbits(40):010x}"
    to_fix = _names(expected.fail_to_pass)
    kept = _names(_sample(expected, seed))
    made: dict[str, _BlindFile] = {}
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
                    watched.append(_Watched(tests, {}, (failing(source, function, token),)))
                continue
            holes = find_holes(source, function, file.base)
            numbered = dict(enumerate(holes, start=numbers))
            numbers += len(numbered)
            edits = changed(source, function, chance) or [failing(source, function, token)]
            watched.append(_Watched(tests, numbered, tuple(edits)))
        if watched:
            made[file.path] = _BlindFile(source, file.base, tuple(watched))
    return Blind(made)


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


def _function(test: str) -> str:
    """Return the id of a test without its parameters."""
    return test.partition("[")[0]


def _names(tests: Iterable[str]) -> dict[str, set[str]]:
    """Return the tests by what their functions may be called: by name, or by docstring title."""
    found: dict[str, set[str]] = defaultdict(set)
    for test in tests:
        found[test].add(test)
        if "::" in test:
            found[_function(test).rpartition("::")[2]].add(test)
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
    line = f"{_HOLE} = dict(); exec({code!r}, {_HOLE}); {_HOLE}['RECORDS'] = {records!r}; "
    line += f"{_HOLE} = {_HOLE}['hole']"
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
