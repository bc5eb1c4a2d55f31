"""Recorded evaluation logs: do parsers and rules agree with the official reports, test by test?

    scripts/conformance grading                    # eval-logs in $SWE_ROLLOUT_DATA
    scripts/conformance grading FOLDER… --rows verified.parquet lite.parquet

Expected tests and parsers come from the rows; for an instance without a row, from its report and
its repository. Every disagreement is a line on stderr; exits with 1 when there is one.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rollout_dev.conformance.recorded_logs import BadLogError, RecordedLog, recorded_logs
from rollout_dev.report import Report, Row, parser
from swe_rollout.datasets import projects, swebench
from swe_rollout.errors import DatasetError, SweRolloutError
from swe_rollout.grading import rules
from swe_rollout.grading.parsers import load_parser
from swe_rollout.types.instance import Expected, Instance, Rule

_ROOT = Path(__file__).resolve().parents[3]
_DATA = Path(os.environ.get("SWE_ROLLOUT_DATA") or _ROOT.parent / "shared" / "data")
_SMITH = re.compile(r"\.[0-9a-f]{8}\.")
"""The commit in the instance ids of SWE-smith."""


def main(arguments: Sequence[str]) -> int:
    """Judge every log and compare; the exit status."""
    options = parser("scripts/conformance grading", __doc__)
    options.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    options.add_argument("--rows", nargs="+", type=Path, metavar="FILE", help="files of rows")
    given = options.parse_args(arguments)
    folders: list[Path] = given.folders or [_DATA / "eval-logs"]
    files = given.rows if given.rows is not None else sorted((_DATA / "swebench").glob("*.parquet"))
    try:
        logs = [log for folder in folders for log in recorded_logs(folder)]
        known = rows(files)
    except BadLogError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except DatasetError as error:
        problems = "; ".join(map(str, error.problems))
        sys.stderr.write(f"error: {error.what}: {problems}\n  fix   {error.fix}\n")
        return 2
    if not logs:
        where = ", ".join(map(str, folders))
        sys.stderr.write(
            f"error: there are no recorded logs in {where}\n  fix   name a folder with "
            "<instance>/test_output.txt and report.json, or set SWE_ROLLOUT_DATA\n"
        )
        return 2
    report = _report(logs, known)
    return report.printed(as_json=given.json)


def rows(files: Iterable[Path]) -> dict[str, Instance]:
    """Return the instances of files of rows by id. Raises DatasetError."""
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
