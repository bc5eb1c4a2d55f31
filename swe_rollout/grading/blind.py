"""Blind tests: a task's tests without the values that they expect. Pure.

A patch that resolves the task is tested once more, blind. An object stands in place of each
expected value; it records what it is compared with and says that they are equal. The records are
compared outside of the sandbox, so nobody has to trust them: code of the patch may forge whatever
it likes there, but it does not know the value. Tests without such values fail by an edit instead,
so who reports them as passed is found out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from swe_rollout.errors import GraderError
from swe_rollout.grading.blind_files import (
    BlindFile,
    TestFile,
    Watched,
    function_of,
    make_files,
    may_be_blind,
)
from swe_rollout.grading.holes import Hole
from swe_rollout.grading.odds import odds
from swe_rollout.grading.wants import (
    Computed,
    Contains,
    Filed,
    NotARecordError,
    Truth,
    Unplain,
    Want,
    holds,
    read_record,
)
from swe_rollout.sandbox.patch_text import file_diffs
from swe_rollout.types.instance import Expected, Instance
from swe_rollout.types.verdict import TestStatus

MAX_RECORDS_BYTES: Final = 8 << 20
_MOST_RECORDS: Final = 20_000
"""The most different records that are read; a run with more is wrong."""
_FAILED: Final = frozenset({TestStatus.FAILED, TestStatus.ERROR})
_PASSED: Final = frozenset({TestStatus.PASSED, TestStatus.XFAIL})
_SHOWN: Final = 3
_RECORD: Final = re.compile(r"(\d{1,7}) ([ -~]+)")
_GUESSED: Final = 1 / 4
"""A test whose answers and parts are guessed at better odds is made to fail instead."""


@dataclass(frozen=True, slots=True)
class Blind:
    """The test files of a blind run."""

    files: Mapping[str, BlindFile]
    data: tuple[TestFile, ...] = ()
    """The other files of the hidden tests."""

    def texts(self, records: str) -> dict[str, str]:
        """Return each file by path, for a run that writes its records to the path `records`."""
        texts = {path: file.text(records) for path, file in self.files.items()}
        return texts | {file.path: "" for file in self._emptied}

    @property
    def bases(self) -> dict[str, str | None]:
        """The text of each file in the base, by path."""
        bases = {path: file.base for path, file in self.files.items()}
        return bases | {file.path: file.base for file in self.data}

    @property
    def _emptied(self) -> tuple[TestFile, ...]:
        """The files with nothing but what a hole asks for."""
        known = {
            value
            for hole in self.holes.values()
            if isinstance(hole.want, Filed)
            for value in hole.want.values
        }
        return tuple(file for file in self.data if not known.isdisjoint(_as_read(file)))

    @property
    def holes(self) -> dict[int, Hole]:
        """All holes by number."""
        return {number: hole for each in self.watched for number, hole in each.holes.items()}

    @property
    def watched(self) -> Iterator[Watched]:
        """All tests that change."""
        return (each for file in self.files.values() for each in file.watched)

    def telling(self, base: BlindRun) -> frozenset[int]:
        """Return the holes whose values an agent can neither read in the base nor get from it.

        `base` is a run of the base itself.
        """
        return frozenset(
            number
            for number, hole in self.holes.items()
            if hole.is_new and not base.meets(number, hole.want)
        )

    def filled(self, gold: BlindRun) -> Blind:
        """Return these files with what a run of the gold patch shows where the test computes."""
        texts = frozenset(text for file in self.data for text in _as_read(file))
        return self._with(
            lambda each: {n: gold.shown(n, hole, texts) for n, hole in each.holes.items()}
        )

    def _with(self, holes: Callable[[Watched], Mapping[int, Hole]]) -> Blind:
        files = {
            path: replace(file, watched=tuple(replace(w, holes=holes(w)) for w in file.watched))
            for path, file in self.files.items()
        }
        return replace(self, files=files)

    def confirmed(
        self, gold: BlindRun, telling: frozenset[int], *, salvages: bool = False
    ) -> Blind:
        """Return what stays out after a run of the gold patch: where its record is the value.

        A test whose telling holes could be guessed keeps none
        and is made to fail instead; so is one that failed, unless what it did before can be
        salvaged: the holes before the one that it met last, which must have broken it.
        """
        failed = {function_of(test) for test, status in gold.statuses.items() if status in _FAILED}
        passed = {function_of(test) for test, status in gold.statuses.items() if status in _PASSED}

        def kept(each: Watched) -> Mapping[int, Hole]:
            names = {function_of(test) for test in each.tests}
            right = {n: hole for n, hole in each.holes.items() if gold.meets(n, hole.want)}
            if names & failed:
                last = [number for number in gold.records if number in each.holes][-1:]
                right = {n: hole for n, hole in right.items() if salvages and n not in last}
            wants = [(hole.want, n in telling) for n, hole in right.items()]
            sound = names & (passed | failed) and _is_worth(wants)
            return right if sound else {}

        return self._with(kept)

    @property
    def blinded(self) -> frozenset[str]:
        """The ids, without parameters, of tests that have a hole."""
        return frozenset(
            function_of(name) for each in self.watched if each.holes for name in each.tests
        )


@dataclass(frozen=True, slots=True)
class BlindRun:
    """What a blind run showed."""

    statuses: Mapping[str, TestStatus]
    records: Mapping[int, tuple[object, ...]]
    """What each hole was compared with."""

    @classmethod
    def of(cls, statuses: Mapping[str, TestStatus], data: bytes) -> BlindRun:
        """Read the records that a run left behind. Takes up to seconds."""
        found: dict[int, list[object]] = defaultdict(list)
        lines = dict.fromkeys(data.decode("ascii", "replace").split("\n"))
        for count, line in enumerate(lines):
            if not line:
                continue
            try:
                number, value = _record(line if count <= _MOST_RECORDS else "")
            except NotARecordError:
                # Somebody else has written this; what is missing is not known.
                return cls(statuses, {})
            found[number].append(value)
        return cls(statuses, {number: tuple(values) for number, values in found.items()})

    def meets(self, number: int, want: Want) -> bool:
        """Return whether a check was made, and nothing that it looked at fails it."""
        return holds(want, self.records.get(number, ()))

    def shown(self, number: int, hole: Hole, texts: Collection[object]) -> Hole:
        """Return a hole with what a run of the gold patch shows, if the test computes that.

        What it should read from a file has to be one of `texts`.
        """
        match hole.want:
            case Filed(values=()):
                seen = self.records.get(number, ())
                known = all(isinstance(each, str | bytes) and each in texts for each in seen)
                return replace(hole, want=Filed(seen if known else ()))
            case Computed(values=()) if not self.is_unplain(number):
                return replace(hole, want=Computed(self.records.get(number, ())))
            case _:
                return hole

    def is_unplain(self, number: int) -> bool:
        """Return whether a check looked at what can't be recorded, such as an object."""
        return Unplain.UNPLAIN in self.records.get(number, ())


def _as_read(file: TestFile) -> tuple[str | bytes, ...]:
    """Return what a test may read from a file; an empty one shows nothing."""
    texts = dict.fromkeys((file.text, file.text.rstrip(), file.text.strip()))
    return tuple(each for text in texts if text for each in (text, text.encode()))


def _record(line: str) -> tuple[int, object]:
    if (record := _RECORD.fullmatch(line)) is None:
        raise NotARecordError
    return int(record[1]), read_record(record[2])


def _is_worth(wants: Iterable[tuple[Want, bool]]) -> bool:
    """Return whether a test's checks tell more than that it must fail."""
    known = list(wants)
    if any(tells and not isinstance(want, (Truth, Contains)) for want, tells in known):
        return True
    return odds(known, "") <= _GUESSED


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
        cls, blind: Blind, gold: BlindRun, instance: Instance, telling: frozenset[int]
    ) -> Expectation:
        """Read a run of the gold patch."""
        expected = instance.expected
        statuses = gold.statuses
        blinded = blind.blinded
        passing = {t for t, s in statuses.items() if s in _PASSED and function_of(t) in blinded}
        wanted = dict.fromkeys((*expected.fail_to_pass, *expected.pass_to_pass))
        failing = {
            test: statuses[test]
            for test in wanted
            if statuses.get(test) in _FAILED and function_of(test) not in blinded
        }
        wants = [(h.want, number in telling) for number, h in blind.holes.items() if h.is_new]
        visible = "\n".join(_visible(instance, blind.texts("")))
        claimed = odds(wants, visible, issue=instance.problem_statement)
        return cls(blind, frozenset(passing), failing, claimed)

    def watched(self, expected: Expected) -> frozenset[str]:
        """Return the tests to fix that this run can tell from forgeries."""
        blinded = self.blind.blinded
        return frozenset(
            test
            for test in expected.fail_to_pass
            if test in self.failing or function_of(test) in blinded
        )

    def problems(self, seen: BlindRun, expected: Expected) -> tuple[str, ...]:
        """Return each way in which a patch's run differs from that of working code."""
        found = list(self._problems(seen, frozenset(expected.fail_to_pass)))
        more = (f"and {len(found) - _SHOWN} more like these",) if found[_SHOWN:] else ()
        return (*found[:_SHOWN], *more)

    def held(self, seen: BlindRun) -> frozenset[str]:
        """Return the tests to fix that pass by what the code under test computes."""
        return frozenset(
            test
            for each in self.blind.watched
            for test in each.tests
            if _is_held(each, seen) and (each.holes or seen.statuses.get(test) in _FAILED)
        )

    def require_plain(self, seen: BlindRun) -> None:
        """Raise GraderError if an object was compared, whose equality only the patch knows.

        It may be honest: it is no evidence of anything.
        """
        for number, hole in self.blind.holes.items():
            if seen.is_unplain(number):
                raise GraderError(
                    "the patch can't be judged",
                    why=f"its tests compare an object with {_short(hole.want)}, and only code of "
                    "the patch knows whether they are equal",
                    fix="nothing: the episode has no reward",
                    retryable=False,
                )

    def _problems(self, seen: BlindRun, to_fix: frozenset[str]) -> Iterator[str]:
        for test in sorted(self.passing):
            status = seen.statuses.get(test, TestStatus.MISSING)
            if status not in _PASSED:
                yield f"{test} passes, but is {status.value} where it can't see what is expected"
        for number, hole in sorted(self.blind.holes.items()):
            if number not in seen.records:
                yield f"{_short(hole.want)} is not computed where it can't be seen"
            elif not (seen.meets(number, hole.want) or seen.is_unplain(number)):
                yield f"another value than {_short(hole.want)} is computed where it can't be seen"
        for test, gold in self.failing.items():
            status = seen.statuses.get(test, TestStatus.MISSING)
            if status in _PASSED or (test in to_fix and status not in _FAILED):
                yield f"{test} is {status.value} where it has to be {gold.value}"


def _visible(instance: Instance, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield what code of a patch can read in a blind run, beside the issue."""
    yield from texts.values()
    yield from instance.evaluation.commands
    yield (instance.evaluation.script or "").replace(instance.test_patch, "")
    for part in file_diffs(instance.test_patch.encode(errors="replace")):
        if not any(path in texts for path in part.paths):
            yield re.sub(r"(?m)^[+ ]", "", part.data.decode(errors="replace"))


def _is_held(watched: Watched, seen: BlindRun) -> bool:
    return all(seen.meets(number, hole.want) for number, hole in watched.holes.items())


def _short(want: Want) -> str:
    text = str(want)
    return text if len(text) <= 60 else f"{text[:60]}…"  # noqa: PLR2004 (a line)


def make_blind(files: Iterable[TestFile], expected: Expected, seed: str) -> Blind:
    """Take out what these test files expect of the tests to fix, and make other tests fail."""
    known = tuple(files)
    made = make_files(known, expected, seed)
    return Blind(made, tuple(file for file in known if not may_be_blind(file.path)))
