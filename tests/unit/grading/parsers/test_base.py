"""A log parser that breaks is a failure of grading, never a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from swe_rollout.errors import Boundary, ExtensionFailedError
from swe_rollout.grading.parsers.base import LogParser, NamedLogParser, Result
from swe_rollout.types.verdict import TestStatus


def lazy(_: str) -> Iterator[Result]:
    yield Result("a", TestStatus.PASSED)
    raise KeyError("b")


def raising(_: str) -> dict[str, str]:
    raise ValueError("no table")


@pytest.mark.parametrize(
    ("parse", "why"),
    [
        (raising, "ValueError: no table"),
        (lazy, "KeyError: 'b'"),
        (lambda _: {"a": "passed"}, "'passed' is not a valid TestStatus"),
        (lambda _: {"a": "missing"}, "one of PASSED, FAILED, ERROR, SKIPPED, XFAIL"),
        (lambda _: {1: "PASSED"}, "expected a test id"),
        (lambda _: [("a", "PASSED")], "expected a Result; found a tuple"),
        (lambda _: None, "TypeError"),
    ],
)
def test_what_a_parser_does_wrong_is_said_with_its_name(parse: object, why: str) -> None:
    with pytest.raises(ExtensionFailedError, match="the log parser mine:parse failed") as caught:
        NamedLogParser("mine:parse", cast("LogParser", parse)).read("log")
    assert why in caught.value.why
    assert caught.value.boundary is Boundary.EXTENSION
    assert not caught.value.retryable


def test_a_mapping_is_as_good_as_results() -> None:
    parser = NamedLogParser("mine", lambda _: {"b": "FAILED", "a": TestStatus.PASSED})
    assert parser.read("") == [Result("b", TestStatus.FAILED), Result("a", TestStatus.PASSED)]
