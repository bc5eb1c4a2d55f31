"""Parse JUnit's XML reports in a log, which most runners can write."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import worst_wins
from swe_rollout.grading.parsers.xml_documents import documents
from swe_rollout.types.verdict import TestStatus

_CHILDREN = {
    "failure": TestStatus.FAILED,
    "error": TestStatus.ERROR,
    "skipped": TestStatus.SKIPPED,
}


@worst_wins
def junit_xml(log: str) -> Iterator[Result]:
    """Read each `<testcase>` as `classname::name`, or as its name when it has no class."""
    for root in documents(log, "testsuites", "testsuite"):
        for case in root.iter("testcase"):
            if name := (case.get("name") or "").strip():
                classname = (case.get("classname") or "").strip()
                yield Result(f"{classname}::{name}" if classname else name, _status(case))


def _status(case: Element) -> TestStatus:
    children = {child.tag: child.get("type") for child in case}
    if children.get("skipped") == "pytest.xfail":
        return TestStatus.XFAIL
    return next((_CHILDREN[kind] for kind in _CHILDREN if kind in children), TestStatus.PASSED)
