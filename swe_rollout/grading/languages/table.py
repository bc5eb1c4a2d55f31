"""The languages whose tests can run blind, and the checks that they know. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from typing import Final

from swe_rollout.grading.wants import Truth


class Kind(Enum):
    """What a check with an expected value asks for."""

    EQUAL = "equal"
    CONTAINS = "contains"


@dataclass(frozen=True, slots=True)
class Rule:
    """A check, as a chain of calls whose arguments are counted in order."""

    asks: Kind | Truth
    actual: int = 0
    expected: int = 1
    either: bool = False
    """Whether people give the two in either order."""
    message: bool = False
    """Whether a message may follow."""

    @property
    def arguments(self) -> tuple[int, int]:
        """The least and the most arguments."""
        least = max(self.actual, -1 if isinstance(self.asks, Truth) else self.expected) + 1
        return least, least + self.message


@dataclass(frozen=True, slots=True)
class Language:
    """How tests are written in a language."""

    suffixes: tuple[str, ...]
    grammar: tuple[str, str]
    """The package of the grammar, and the function that returns it."""
    rules: Mapping[str, Rule]
    """By the names of a chain of calls, such as `expect.toBe`."""
    recorder: str
    """The name of the recorder's file."""
    fails: str
    """A statement by which a test fails with the message `{message}`."""
    context: str = ""
    """The name of the test's own object, where it comes first in a check."""


_SAME = Rule(Kind.EQUAL, message=True)
_TOLD = {"assert.ok": Truth.TRUE, "assert": Truth.TRUE, "expect.toBeTruthy": Truth.TRUE}
_JAVASCRIPT: Final[Mapping[str, Rule]] = {
    **{f"assert.{name}": _SAME for name in ("strictEqual", "deepStrictEqual")},
    **{f"expect.{name}": Rule(Kind.EQUAL) for name in ("toBe", "toEqual", "toStrictEqual")},
    **{f"expect.to.{name}": _SAME for name in ("equal", "eql", "be.equal", "deep.equal")},
    **{f"expect.{name}": Rule(Kind.CONTAINS) for name in ("toContain", "to.contain", "to.include")},
    **{name: Rule(truth, message=True) for name, truth in _TOLD.items()},
    "expect.toBeFalsy": Rule(Truth.FALSE),
    "expect.toBeNull": Rule(Truth.IS_NONE),
}
_GO: Final[Mapping[str, Rule]] = {
    f"{package}.{name}": rule
    for package in ("assert", "require")
    for name, rule in (
        ("Equal", Rule(Kind.EQUAL, actual=1, expected=0, message=True)),
        ("Contains", Rule(Kind.CONTAINS, message=True)),
        ("True", Rule(Truth.TRUE, message=True)),
        ("False", Rule(Truth.FALSE, message=True)),
        ("Nil", Rule(Truth.IS_NONE, message=True)),
    )
}
_JAVA: Final[Mapping[str, Rule]] = {
    **{
        f"{owner}{name}": rule
        for owner in ("", "Assert.", "Assertions.")
        for name, rule in (
            ("assertEquals", Rule(Kind.EQUAL, actual=1, expected=0, either=True)),
            ("assertTrue", Rule(Truth.TRUE)),
            ("assertFalse", Rule(Truth.FALSE)),
            ("assertNull", Rule(Truth.IS_NONE)),
        )
    },
    "assertThat.isEqualTo": Rule(Kind.EQUAL),
    "assertThat.contains": Rule(Kind.CONTAINS),
    "assertThat.isTrue": Rule(Truth.TRUE),
    "assertThat.isFalse": Rule(Truth.FALSE),
    "assertThat.isNull": Rule(Truth.IS_NONE),
}
_THROW: Final = "; throw new Error('{message}'); "
LANGUAGES: Final = (
    Language(
        (".js", ".mjs", ".cjs", ".jsx"),
        ("tree_sitter_javascript", "language"),
        _JAVASCRIPT,
        "recorder.js",
        _THROW,
    ),
    Language(
        (".ts", ".mts", ".cts"),
        ("tree_sitter_typescript", "language_typescript"),
        _JAVASCRIPT,
        "recorder.js",
        _THROW,
    ),
    Language(
        (".tsx",),
        ("tree_sitter_typescript", "language_tsx"),
        _JAVASCRIPT,
        "recorder.js",
        _THROW,
    ),
    Language(
        ("_test.go",),
        ("tree_sitter_go", "language"),
        _GO,
        "recorder.go",
        '; t.Fatal("{message}") ',
        context="t",
    ),
    Language(
        (".java",),
        ("tree_sitter_java", "language"),
        _JAVA,
        "recorder.java",
        ' if (true) throw new AssertionError("{message}"); ',
    ),
)


def language_of(path: str) -> Language | None:
    """Return the language of a test file, if its tests can run blind."""
    name = PurePosixPath(path).name
    return next((each for each in LANGUAGES if name.endswith(each.suffixes)), None)
