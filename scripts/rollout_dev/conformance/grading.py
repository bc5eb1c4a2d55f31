"""Recorded evaluation logs: do parsers and rules agree with the official reports, test by test?

    scripts/conformance grading                    # eval-logs in $SWE_ROLLOUT_DATA
    scripts/conformance grading FOLDER… --rows verified.parquet lite.parquet

Logs may be at any depth of a folder, in three layouts: `<instance>/{test_output.txt,report.json}`
of SWE-bench's harness 4 and of SWE-smith, and `verdicts.json` (a list of set, instance, resolved)
next to folders of `<instance>.<set>.eval.log` of the first harness.

Expected tests and parsers come from the rows or, for an instance without a row, from its report and
its repository. Every disagreement is a line on stderr; exits with 1 if there is one.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollout_dev.dev_cluster.errors import ScriptError
from rollout_dev.report import Report, Row, option, program
from swe_rollout.datasets import projects, swebench
from swe_rollout.errors import DatasetError, SweRolloutError
from swe_rollout.grading import rules
from swe_rollout.grading.parsers import load_parser
from swe_rollout.types.instance import Expected, Instance, Rule
from swe_rollout.types.verdict import VerdictStatus

_ROOT = Path(__file__).resolve().parents[3]
_DATA = Path(os.environ.get("SWE_ROLLOUT_DATA") or _ROOT.parent / "shared" / "data")
_SMITH = re.compile(r"\.[0-9a-f]{8}\.")
"""The commit in the instance ids of SWE-smith."""


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
    """The test log of one evaluation, and its harness's verdict."""

    harness: str
    place: str
    instance_id: str
    log: str
    resolved: bool
    lists: Mapping[str, TestLists]
    """The tests by list; empty if the harness reported only the verdict."""

    def differences(
        self, judgement: rules.Judgement, bad: Mapping[str, list[str]]
    ) -> Iterator[str]:
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


@program(
    option("folders", nargs="*", type=Path, metavar="FOLDER"),
    option("--rows", nargs="+", type=Path, metavar="FILE", help="files of rows"),
    shows_logs=True,
)
def main(given: Namespace) -> Report:
    """Judge every log and compare."""
    folders: list[Path] = given.folders or [_DATA / "eval-logs"]
    files = given.rows if given.rows is not None else sorted((_DATA / "swebench").glob("*.parquet"))
    try:
        logs = [log for folder in folders for log in recorded_logs(folder)]
        known = rows(files)
    except BadLogError as error:
        raise ScriptError(f"error: {error}", exit_code=2) from error
    except DatasetError as error:
        problems = "; ".join(map(str, error.problems))
        raise ScriptError(f"error: {error.what}: {problems}", fix=error.fix, exit_code=2) from error
    if not logs:
        raise ScriptError(
            f"error: there are no recorded logs in {', '.join(map(str, folders))}",
            fix="name a folder with <instance>/test_output.txt and report.json, or set "
            "SWE_ROLLOUT_DATA",
            exit_code=2,
        )
    return _report(logs, known)


def rows(files: Iterable[Path]) -> dict[str, Instance]:
    """Return the instances in files of rows, by id. Raises DatasetError."""
    found = [
        asyncio.run(swebench.load(str(file.absolute()), base_dir=file.parent)) for file in files
    ]
    return {
        each.instance_id: each for loaded in found for each in loaded if isinstance(each, Instance)
    }


def _report(logs: Sequence[RecordedLog], known: Mapping[str, Instance]) -> Report:
    total, agree, tests = Counter[str](), Counter[str](), Counter[str]()
    notes: list[str] = []
    for log in logs:
        found = list(differences(log, known.get(log.instance_id)))
        total[log.harness] += 1
        agree[log.harness] += not found
        tests[log.harness] += sum(len(t.good) + len(t.bad) for t in log.lists.values())
        notes += found
    for note in notes:
        sys.stderr.write(f"{note}\n")
    rows = tuple(
        Row(name, {"logs": total[name], "agree": agree[name], "tests": tests[name]})
        for name in total
    )
    ratios = {"agree_to_logs": agree.total() / total.total()}
    return Report("grading", rows, not notes, ratios, tuple(notes))


def differences(log: RecordedLog, row: Instance | None) -> Iterator[str]:
    """Describe where our judgement of a log differs from its report."""
    expected = row.expected if row is not None else _of_report(log)
    rule = row.rule if row is not None else Rule.F2P_P2P
    name = row.log_parser if row is not None else _parser(log.instance_id)
    if not (expected.fail_to_pass or expected.pass_to_pass):
        yield f"{log.place}: neither a row nor the report says which tests are expected"
        return
    text = log.log.replace("\r\n", "\n").replace("\r", "\n")
    try:
        results = load_parser(name).read(text)
    except SweRolloutError as error:
        yield f"{log.place}: {error}"
        return
    statuses = {result.test: result.status for result in results}
    judgement = rules.judge(statuses, expected, rule, log=text)
    report = judgement.report
    bad = {
        "FAIL_TO_PASS": rules.unmet(report.fail_to_pass, rules.FIXED, rule),
        "PASS_TO_PASS": rules.unmet(report.pass_to_pass, rules.KEPT, rule),
    }
    yield from log.differences(judgement, bad)


def _of_report(log: RecordedLog) -> Expected:
    lists = {name: tests.good + tests.bad for name, tests in log.lists.items()}
    return Expected(lists.get("FAIL_TO_PASS", ()), lists.get("PASS_TO_PASS", ()))


def _parser(instance_id: str) -> str:
    if _SMITH.search(instance_id):
        return "swesmith"
    repo = instance_id.rpartition("-")[0].replace("__", "/", 1)
    return projects.project_of(repo).log_parser
