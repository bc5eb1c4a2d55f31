"""Parse logs of SWE-bench Multimodal's projects, most of which report failures only.

Names match the expected lists exactly, spaces included: where silence means success, a name that
differs would let a failure pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import Headings, depth, lines, worst_wins
from swe_rollout.types.verdict import TestStatus

_FAILED = "FAILED"
_CHART = re.compile(r"Chrome\s[\d.]+[^\S\n]\(")
_BPMN = (
    re.compile(r"2KPhantomJS\s[\d.]+\s\(Linux\s(?:[\d.]+|x86_64)\)\s"),
    re.compile(r"HeadlessChrome\s[\d.]+\s\(Linux\s[\d.]+\)\s"),
)
_OPENLAYERS = re.compile(r"Chrome\s(?:Headless\s)?[\d.]+\s\(Linux\s\S+\)\s")
_CASE = re.compile(r"^case\s(.*):\smismatch", re.MULTILINE)
_ESLINT_CASE = re.compile(r"\s{2}\d{1,9}\)")
_OPENLAYERS_CASE = re.compile(r"^\s{2}\d{1,9}\)", re.MULTILINE)
_MARKED = re.compile(r"\d{1,9}\)\s(.*)", re.DOTALL)
_P5_CASE = re.compile(r"^[ \t]{0,80}\d{1,9}\)", re.MULTILINE)
_P5_CHARS = 1001
_MS = re.compile(r"\(\d{1,12}ms\)")
_NUMBERED = re.compile(r"\d{1,9}\)")
_LIGHTHOUSE_TEST = re.compile(r"(✔|\d{1,9}\)) ")
_NOISE = ("ERROR", "LOG", "WARN", "Check", "in")


def chart_js(log: str) -> Iterator[Result]:
    """Read `Chrome 98.0 (Linux x86_64) suite name FAILED`."""
    for line in lines(log):
        if line.endswith(_FAILED) and (match := _CHART.search(line)):
            rest = line[match.end() + 1 :].partition(") ")[2]
            if rest:
                yield Result(rest.removesuffix(_FAILED), TestStatus.FAILED)


def bpmn_js(log: str) -> Iterator[Result]:
    """Read failures in PhantomJS and in Chrome without a window."""
    for line in lines(log):
        if not line.endswith(_FAILED):
            continue
        head, found, rest = line.rpartition(" (Linux x86_64) ")
        if found and "Chrome Headless " in head:
            yield Result(rest.removesuffix(_FAILED), TestStatus.FAILED)
            continue
        for pattern in _BPMN:
            if match := pattern.search(line):
                yield Result(line[match.end() :].removesuffix(_FAILED), TestStatus.FAILED)


def openlayers(log: str) -> Iterator[Result]:
    """Read failures in Chrome, in Mocha's list, and of rendering cases."""
    plain = "\n".join(lines(log))
    for line in plain.split("\n"):
        if line.endswith(_FAILED) and (match := _OPENLAYERS.search(line)):
            yield from _failed(line[match.end() :].removesuffix(_FAILED))
    for found in _until(plain, _OPENLAYERS_CASE, "Error:"):
        yield from _failed(found)
    for name in _CASE.findall(plain):
        yield from _failed(name)


def eslint(log: str) -> Iterator[Result]:
    """Read Mocha's list of failures: `  1) suite`, `name:`, and a line with an error."""
    plain = "\n".join(lines(log))
    for found in _until(plain, _ESLINT_CASE, "Error"):
        # The text before the line with the error.
        head, newline, _ = found.rpartition("\n")
        yield from _failed(head if newline else found.split(" ", 1)[0])


def marked(log: str) -> Iterator[Result]:
    """Read Jasmine's list of failures: `1) suite name`."""
    for line in lines(log):
        if (match := _MARKED.match(line)) and (name := match[1].strip()):
            yield Result(name, TestStatus.FAILED)


def p5js(log: str) -> Iterator[Result]:
    """Read Mocha's list of failures, whose suites and name are indented ever deeper."""
    log = _without_json("\n".join(lines(log)))
    end = 0
    for match in _P5_CASE.finditer(log):
        if match.start() < end:
            continue
        end = log.find(":", match.end(), match.end() + _P5_CHARS)
        parts = log[match.end() : end].split("\n") if end >= 0 else []
        depths = [depth(part) for part in parts]
        if parts and all(a < b for a, b in zip([0, *depths], depths, strict=False)):
            yield Result(":".join(part.strip() for part in parts), TestStatus.FAILED)


@worst_wins
def highlightjs(log: str) -> Iterator[Result]:
    """Read Mocha's report as `suite.name`, with the innermost suite alone."""
    suite: list[str] = []
    for line in lines(log):
        text = line.strip()
        if text.partition(" ")[2].startswith("passing") and text[:1].isdecimal():
            return
        if text[:1] in ("✓", "✔"):
            yield Result(".".join([*suite, _MS.sub("", text[1:]).strip()]), TestStatus.PASSED)
        elif _NUMBERED.match(text):
            name = _MS.sub("", text.partition(")")[2]).strip()
            yield Result(".".join([*suite, name]), TestStatus.FAILED)
        elif line.startswith("  "):
            suite = [text]


@worst_wins
def calypso(log: str) -> Iterator[Result]:
    """Read Jest's report as `suite - name`, after each call of Jest in the trace."""
    suites = Headings()
    for part in "\n".join(lines(log)).split(" ./node_modules/.bin/jest ")[1:]:
        for line in part.split("\n"):
            text = line.strip()
            if line.startswith(("Test Suites", "  ● ")):
                break
            if text[:1] in ("✓", "✕"):
                name = _MS.sub("", text[1:]).strip()
                path = " - ".join([" - ".join(h for _, h in suites.stack), name]).strip()
                passed = text.startswith("✓")
                yield Result(path, TestStatus.PASSED if passed else TestStatus.FAILED)
            elif depth(line):
                suites.enter(line)


@worst_wins
def fusion_next(log: str) -> Iterator[Result]:
    """Read Karma's report as `suite - name`, after each start of the browser."""
    suites = Headings()
    for part in "\n".join(lines(log)).split(" xvfb-run ")[1:]:
        for line in part.rpartition("Starting browser Chrome")[2].split("\n"):
            if line.startswith("TOTAL"):
                break
            if line.strip().startswith(_NOISE):
                continue
            for mark, status in (("✗", TestStatus.FAILED), ("✓", TestStatus.PASSED)):
                if mark in line:
                    name = line.partition(mark)[2].lstrip()
                    yield Result(suites.path(name, " - "), status)
                    break
            else:
                if depth(line):
                    suites.enter(line)


@worst_wins
def lighthouse_mocha(log: str) -> Iterator[Result]:
    """Read Mocha's report as `suite - name`, after each count of test files."""
    suites = Headings()
    running = False
    for line in lines(log):
        text = line.strip()
        if text.startswith("running ") and text.endswith("test files"):
            suites, running = Headings(), True
        elif text.partition(" ")[2].startswith("passing") and text[:1].isdecimal():
            running = False
        elif running and (match := _LIGHTHOUSE_TEST.match(text)):
            name = _MS.sub("", text[match.end() :]).strip()
            status = TestStatus.PASSED if match[1] == "✔" else TestStatus.FAILED
            yield Result(suites.path(name, " - "), status)
        elif running and depth(line):
            suites.enter(line)


def _failed(text: str) -> Iterator[Result]:
    if name := " ".join(text.split()):
        yield Result(name, TestStatus.FAILED)


def _until(text: str, opening: re.Pattern[str], closing: str) -> Iterator[str]:
    """Yield the text between each opening and the next closing, without overlaps."""
    position = 0
    while (match := opening.search(text, position)) is not None:
        end = text.find(closing, match.end())
        if end < 0:
            return
        yield text[match.end() : end]
        position = end + len(closing)


def _without_json(log: str) -> str:
    """Leave out lines that look like printed objects and lists."""
    kept: list[str] = []
    closing = ""
    for raw in log.split("\n"):
        line = raw.rstrip()
        if line.endswith("{"):
            closing = "}"
        elif line.endswith("["):
            closing = "]"
        elif closing:
            closing = "" if line == closing else closing
        elif (line[:1], line[-1:]) not in (("{", "}"), ("[", "]")):
            kept.append(raw)
    return "\n".join(kept)
