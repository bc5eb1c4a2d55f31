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
    LOOSE = "equal after conversion"
    CONTAINS = "contains"


@dataclass(frozen=True, slots=True)
class Rule:
    """A check, as a chain of calls whose arguments are counted in order."""

    asks: Kind | Truth
    actual: int = 0
    expected: int = 1
    either: bool = False
    """Whether people give the two in either order."""
    messages: int = 0
    """How many arguments may follow, for a message."""

    @property
    def arguments(self) -> tuple[int, int]:
        """The least and the most arguments."""
        least = max(self.actual, -1 if isinstance(self.asks, Truth) else self.expected) + 1
        return least, least + self.messages


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
    call: str = "{hole}.{method}("
    """How a call of the recorder begins."""


_MANY: Final = 100
_SAME = Rule(Kind.EQUAL, messages=1)
_TOLD = {"assert.ok": Truth.TRUE, "assert": Truth.TRUE, "expect.toBeTruthy": Truth.TRUE}
_JAVASCRIPT: Final[Mapping[str, Rule]] = {
    **{f"assert.{name}": _SAME for name in ("strictEqual", "deepStrictEqual")},
    "assert.equal": Rule(Kind.LOOSE, messages=1),
    **{f"expect.{name}": Rule(Kind.EQUAL) for name in ("toBe", "toEqual", "toStrictEqual")},
    **{f"expect.to.{name}": _SAME for name in ("equal", "eql", "be.equal", "deep.equal")},
    **{f"expect.{name}": Rule(Kind.CONTAINS) for name in ("toContain", "to.contain", "to.include")},
    **{name: Rule(truth, messages=1) for name, truth in _TOLD.items()},
    "expect.toBeFalsy": Rule(Truth.FALSE),
    "expect.toBeNull": Rule(Truth.IS_NONE),
}
_GO: Final[Mapping[str, Rule]] = {
    f"{package}.{name}": rule
    for package in ("assert", "require")
    for name, rule in (
        ("Equal", Rule(Kind.EQUAL, actual=1, expected=0, messages=1)),
        ("Contains", Rule(Kind.CONTAINS, messages=1)),
        ("True", Rule(Truth.TRUE, messages=1)),
        ("False", Rule(Truth.FALSE, messages=1)),
        ("Nil", Rule(Truth.IS_NONE, messages=1)),
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
# A plain `throw` would make the rest unreachable, which compilers may refuse.
_THROW: Final = " if (1 > 0) throw new Error('{message}'); "
_RUST: Final = {
    "assert_eq!": Rule(Kind.EQUAL, either=True, messages=_MANY),
    "assert!": Rule(Truth.TRUE, messages=_MANY),
}
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
        ' t.Fatal("{message}"); ',
        context="t",
    ),
    Language(
        (".java",),
        ("tree_sitter_java", "language"),
        _JAVA,
        "recorder.java",
        ' if (true) throw new AssertionError("{message}"); ',
    ),
    Language(
        (".rs",),
        ("tree_sitter_rust", "language"),
        _RUST,
        "recorder.rs",
        ' if true {{ panic!("{message}"); }} ',
        call="{hole}!({method} ",
    ),
)


def language_of(path: str) -> Language | None:
    """Return the language of a test file, if its tests can run blind."""
    name = PurePosixPath(path).name
    return next((each for each in LANGUAGES if name.endswith(each.suffixes)), None)
