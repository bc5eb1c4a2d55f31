"""Find recorded evaluation logs in folders, and what the official harnesses reported of them.

Three layouts, at any depth: `<instance>/{test_output.txt,report.json}` of SWE-bench's harness 4 and
of SWE-smith, and `verdicts.json` (a list of set, instance, resolved) beside folders of
`<instance>.<set>.eval.log` of the first harness.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from swe_rollout.grading.rules import Judgement
from swe_rollout.types.verdict import VerdictStatus

_LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")
_START, _END = ">>>>> Start Test Output", ">>>>> End Test Output"
_PATCHED = ">>>>> Applied Patch (pred)"


class BadLogError(Exception):
    """A folder of logs that can't be read; the text says where and why."""


@dataclass(frozen=True, slots=True)
class TestLists:
    """The tests of one list that an official report calls good and bad."""

    good: tuple[str, ...]
    bad: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordedLog:
    """The test log of one evaluation, and what its harness said of it."""

    harness: str
    place: str
    instance_id: str
    log: str
    resolved: bool
    lists: Mapping[str, TestLists]
    """Empty where the harness reported the verdict alone."""

    def differences(self, judgement: Judgement, bad: Mapping[str, list[str]]) -> Iterator[str]:
        """Describe where our judgement differs; `bad` has our unmet tests by list."""
        resolved = judgement.status is VerdictStatus.RESOLVED
        if resolved != self.resolved:
            yield f"{self.place}: {judgement.status}; the report says resolved={self.resolved}"
        for name, official in self.lists.items():
            ours = {*bad[name]}
            for test in sorted(ours ^ {*official.bad}):
                word = "unmet" if test in ours else "met"
                yield f"{self.place}: {name} {test!r} is {word} here, and not in the report"


def recorded_logs(folder: Path) -> Iterator[RecordedLog]:
    """Yield every recorded log below a folder, in order of their paths. Raises BadLogError."""
    for path in sorted(folder.rglob("report.json")):
        if (path.parent / "test_output.txt").is_file():
            yield _from_report(path)
    for path in sorted(folder.rglob("verdicts.json")):
        yield from _from_verdicts(path)


def _from_report(path: Path) -> RecordedLog:
    whole = _read(path)
    instance_id = path.parent.name
    report: dict[object, object]
    match whole:
        case {"resolved": bool(found), **others}:
            harness, report = "swe-smith", {"resolved": found, **others}
        case {**reports} if isinstance(one := reports.get(instance_id), dict):
            harness, report = "harness-v4", one
        case _:
            raise BadLogError(f"{path}: it has no report of {instance_id}")
    resolved = report.get("resolved")
    if not isinstance(resolved, bool):
        raise BadLogError(f"{path}: `resolved` is not true or false")
    text = (path.parent / "test_output.txt").read_text("utf-8", "replace")
    log = text.partition(_START)[2].partition(_END)[0]
    lists = _lists(path, report.get("tests_status") or {})
    return RecordedLog(harness, str(path.parent), instance_id, log, resolved, lists)


def _lists(path: Path, status: object) -> dict[str, TestLists]:
    found: dict[str, TestLists] = {}
    for name in _LISTS:
        match status:
            case {**lists} if name not in lists:
                continue
            case {**lists}:
                each = lists[name]
            case _:
                each = None
        match each:
            case {"success": list(good), "failure": list(bad)}:
                found[name] = TestLists(tuple(map(str, good)), tuple(map(str, bad)))
            case _:
                raise BadLogError(f"{path}: `tests_status` has no lists of tests")
    return found


def _from_verdicts(path: Path) -> Iterator[RecordedLog]:
    verdicts = _read(path)
    for verdict in verdicts if isinstance(verdicts, list) else [verdicts]:
        match verdict:
            case [str(run), str(instance_id), bool(resolved)]:
                log = path.parent / run / f"{instance_id}.{run}.eval.log"
            case _:
                raise BadLogError(
                    f"{path}: expected [set, instance, resolved]; found {verdict!r:.80}"
                )
        if not log.is_file():
            raise BadLogError(f"{log}: no such file")
        text = log.read_text("utf-8", "replace").rpartition(_PATCHED)[2]
        yield RecordedLog("harness-v1", str(log), instance_id, text, resolved, {})


def _read(path: Path) -> object:
    try:
        found: object = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadLogError(f"{path}: {error}") from error
    return found
