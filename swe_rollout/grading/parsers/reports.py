"""Parse reports inside a log: JUnit's XML, and JSON as parsers in the sandbox print it.

XML is read without entities and text, and within limits of size and depth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import claim, lines, words, worst_wins
from swe_rollout.types.verdict import TestStatus

MOST_DOCUMENTS = 10_000
MOST_ELEMENTS = 500_000
"""The most elements read from one document; more would take gigabytes."""
MOST_LEVELS = 200
_FIRST_CHUNK = 1 << 10
_LARGEST_CHUNK = 1 << 20


def documents(log: str, *roots: str) -> Iterator[Element]:
    """Yield the outermost elements with these names, in order.

    Documents that are malformed, have too many elements or declare entities are skipped.
    """
    data = "\n".join(lines(log)).encode(errors="replace")
    opening = re.compile(rb"<(?:%s)[\s/>]" % b"|".join(root.encode() for root in roots))
    position = 0
    for _ in range(MOST_DOCUMENTS):
        if (match := opening.search(data, position)) is None:
            return
        document = _Document()
        position = match.start() + document.read(memoryview(data)[match.start() :])
        if document.root is not None:
            yield document.root


class _EndError(Exception):
    """Signals the end of the document, or something refused in it."""


@dataclass(slots=True)
class _Document:
    """A document while it is read."""

    root: Element | None = None
    _builder: TreeBuilder = field(default_factory=TreeBuilder)
    _level: int = 0
    _elements: int = 0

    def read(self, data: memoryview) -> int:
        """Read the document at the start of `data`; return the offset at which to continue."""
        parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.EntityDeclHandler = self._refuse
        position, size = 0, _FIRST_CHUNK
        while position < len(data):
            try:
                parser.Parse(bytes(data[position : position + size]))
            except (_EndError, expat.ExpatError):
                return max(parser.CurrentByteIndex, 1)
            position += size
            size = min(size * 2, _LARGEST_CHUNK)
        return len(data)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._level += 1
        self._elements += 1
        if self._level > MOST_LEVELS or self._elements > MOST_ELEMENTS:
            raise _EndError
        self._builder.start(name, attributes)

    def _end(self, name: str) -> None:
        self._level -= 1
        self._builder.end(name)
        if self._level == 0:
            self.root = self._builder.close()
            raise _EndError

    def _refuse(self, *_: object) -> None:
        raise _EndError


_CHILDREN = words(failed="failure", error="error", skipped="skipped")


@worst_wins
def junit_xml(log: str) -> Iterator[Result]:
    """Read each `<testcase>` as `classname::name`, or as its name when it has no class."""
    for root in documents(log, "testsuites", "testsuite"):
        for case in root.iter("testcase"):
            if name := (case.get("name") or "").strip():
                classname = (case.get("classname") or "").strip()
                yield Result(f"{classname}::{name}" if classname else name, _case_status(case))


def _case_status(case: Element) -> TestStatus:
    children = {child.tag: child.get("type") for child in case}
    if children.get("skipped") == "pytest.xfail":
        return TestStatus.XFAIL
    return next((_CHILDREN[kind] for kind in _CHILDREN if kind in children), TestStatus.PASSED)


_WORDS = words(
    passed="PASSED PASS", failed="FAILED FAIL", error="ERROR", skipped="SKIPPED SKIP", xfail="XFAIL"
)


@worst_wins
def json_results(log: str) -> Iterator[Result]:
    """Read the last line, an object: `{"tests": [{"name", "status"}]}` or id to status."""
    try:
        whole = json.loads("\n".join(lines(log)).rstrip().rpartition("\n")[2])
    except (ValueError, RecursionError):
        return
    for name, word in _pairs(whole):
        if isinstance(name, str) and isinstance(word, str):
            yield from claim(name, word.upper(), _WORDS)


def _pairs(whole: object) -> Iterable[tuple[object, object]]:
    match whole:
        case {"tests": list(tests)}:
            return [(t.get("name"), t.get("status")) for t in tests if isinstance(t, dict)]
        case dict():
            return whole.items()
        case _:
            return ()
