"""What test runs print and write: logs of every parser, and reports."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from rollout_dev.fuzz.surface import Shape, Surface, promise, split_head, with_head
from rollout_dev.fuzz.surfaces import real
from swe_rollout.grading import reward_file
from swe_rollout.grading.junit import disagreements, failure_texts, key_of, read_report
from swe_rollout.grading.parsers import LOG_PARSERS, load_parser
from swe_rollout.types.verdict import TestStatus

_LINES = (
    *("PASSED tests/test_a.py::test_b[x y]", "FAILED tests/test_a.py::test_b - assert 1", "ok"),
    *("tests/test_a.py::test_b PASSED [ 50%]", "test_a (tests.test_b.C) ... ok", "ERROR a::b"),
    *("test_a (tests.test_b.C) ... FAIL", "test_a ok", "FAIL: test_a (x.y)", "====== 3 passed ==="),
    *("--- PASS: TestA (0.01s)", "--- FAIL: TestA/b (0.00s)", '{"Action":"pass","Test":"TestA"}'),
    *(
        "test a::b ... ok",
        "test a ... FAILED",
        "[INFO] Tests run: 3, Failures: 1 -- in a.B",
        "PASS a",
    ),
    *("[ERROR] a.B.c:12 x", "> Task :test FAILED", "a.B > c() PASSED", "    ✓ works (3 ms)"),
    *("    ✕ fails", "  1) fails", "ok 1 - a", "not ok 2 - b # SKIP", "1..4", "  8 passing (2s)"),
    *("1/3 Test #1: a .....   Passed    0.01 sec", "[       OK ] A.b (0 ms)", "[  FAILED  ] A.b"),
    *(
        "[ok]: a (1 ms)",
        "PASS: a",
        "XFAIL: b",
        "A::B#c = 0.00 s = .",
        "  a (FAILED - 1)",
        "Scenario: x",
    ),
    *(
        "<testsuite><testcase classname='a' name='b'><failure/></testcase></testsuite>",
        "✔ a",
        "✖ b",
    ),
    *("\x1b[32mPASSED\x1b[0m a::b", "....F..s.E [100%]", "\r", '[["a", "PASSED"]]', " ... "),
    *('{"numTotalTests":1,"testResults":[{"assertionResults":[{"fullName":"a","status":"x"}]}]}',),
)
_GENERIC = "\n".join(_LINES)


def _samples() -> Sequence[bytes]:
    names = LOG_PARSERS.names()
    real_logs = [
        *real.files(real.DATA, "eval-logs/**/*.log", most=30),
        *real.files(real.DATA, "eval-logs/**/test_output.txt", most=10),
    ]
    snippets = real.ROOT / "tests" / "unit" / "grading" / "parsers" / "snippets.py"
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
    failure_texts(log, {}, [each.test for each in results[:3]])


LOGS = Surface(
    "test-logs",
    "the log of the tests, which the policy's code prints into, for every parser",
    _samples,
    _read_log,
    (),
    Shape.TEXT,
    _LINES,
    has_head=True,
    cpu_s=5.0,
)


def _reports() -> Sequence[bytes]:
    case = '<testcase classname="a.b.C" name="d[e]" time="0.1">%s</testcase>'
    inner = ("", "<failure message='m'>t</failure>", "<error/>", "<skipped>s</skipped>")
    xml = (
        f"<testsuites><testsuite>{''.join(case % each for each in inner)}</testsuite></testsuites>"
    )
    names = ("junit", "junit_xml", "surefire")
    made = [with_head(name, xml.encode()) for name in names]
    made += [with_head("reward.json", json.dumps({"reward": 0.5, "b": True}).encode())]
    made += [with_head("reward.txt", b"0.75\n")]
    return made


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


REPORTS = Surface(
    "test-reports",
    "reports that tests write: JUnit's XML, Harbor's rewards",
    _reports,
    _read_report,
    (ValueError,),
    Shape.TEXT,
    (
        *(
            "<testcase>",
            "</testcase>",
            "<testsuite ",
            "<a>" * 300,
            "<!DOCTYPE x [<!ENTITY a 'b'>]>",
        ),
        *(
            "&a;",
            "&#0;",
            "&#x1F600;",
            "<![CDATA[",
            "]]>",
            "<?xml version='1.0' encoding='utf-16'?>",
        ),
        *(
            "<?xml version='1.1'?>",
            "xmlns='x'",
            "xmlns:a='b' ",
            "<!--",
            "1e999",
            "nan",
            "0x1p3",
            "１",
        ),
    ),
    has_head=True,
)
