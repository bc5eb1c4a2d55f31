"""Output of test runs: logs of every parser, and reports."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rollout_dev.fuzz.surface import described, promise, split_head, surface, with_head
from rollout_dev.fuzz.surfaces import real
from swe_rollout.grading import reward_file
from swe_rollout.grading.junit import disagreements, key_of, read_report
from swe_rollout.grading.parsers import LOG_PARSERS, load_parser
from swe_rollout.grading.parsers.base import EndlessIdsError
from swe_rollout.types.verdict import TestStatus

_GENERIC = "\n".join(described("test-logs").words)


def _samples() -> Sequence[bytes]:
    names = LOG_PARSERS.names()
    real_logs = [
        *real.files(real.DATA, "eval-logs/**/*.log", most=30),
        *real.files(real.DATA, "eval-logs/**/test_output.txt", most=10),
    ]
    snippets = real.ROOT / "tests" / "unit" / "grading" / "parsers" / "logs.yaml"
    own = [_GENERIC.encode(), snippets.read_bytes()[: real.MOST_BYTES]]
    made = [with_head(name, log) for name in names for log in own]
    return made + [
        with_head(("pytest", "django", "sympy", "pytest_v2")[i % 4], log)
        for i, log in enumerate(real_logs)
    ]


def _read_log(data: bytes) -> None:
    head, body = split_head(data)
    if head not in LOG_PARSERS.names():
        return
    log = body.decode(errors="replace")
    results = load_parser(head).read(log)
    promise(len(results) <= len(log) + 1, "more results than characters")


LOGS = surface("test-logs", _read_log, EndlessIdsError, samples=_samples)


def _read_report(data: bytes) -> None:
    head, body = split_head(data)
    match head:
        case "reward.json" | "reward.txt":
            found = reward_file.parse(head, body)
            promise(found and all(map(math.isfinite, found.values())), "no number")
        case "junit":
            report = read_report(body)
            tests = [*report][:5]
            disagreements(dict.fromkeys(tests, TestStatus.PASSED), report, map(key_of, tests))
        case "junit_xml" | "surefire":
            load_parser(head).read(body.decode(errors="replace"))
        case _:
            pass


REPORTS = surface("test-reports", _read_report, ValueError)
