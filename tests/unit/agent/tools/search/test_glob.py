"""Globs: what they match, and that none of them takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.search.glob import Glob


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "ab", False),
        ("**", "x/y", True),
        ("**/x", "x", True),
        ("a*c", "a/c", False),
        ("a**c", "a/c", False),
        ("{a,b{c,d}}.py", "bd.py", True),
        ("{a}.py", "{a}.py", True),
        ("{a,.py", "{a,.py", True),
        ("[a-c]x", "bx", True),
        ("[!a]x", "ax", False),
        ("a.c", "abc", False),
        ("./a//b", "a/b", True),
    ],
)
def test_a_pattern_matches(pattern: str, path: str, matches: bool) -> None:  # noqa: FBT001
    assert Glob.of(pattern).matches(path) is matches


def test_a_name_alone_may_match_anywhere() -> None:
    assert Glob.of("*.py", anywhere=True).matches("a/b.py")
    assert not Glob.of("a/*.py", anywhere=True).matches("x/a/b.py")


@pytest.mark.parametrize("pattern", ["", "\0", "x" * 2000, "{a,b}" * 9, "/".join(["**"] * 20)])
def test_a_pattern_without_bounds_is_refused(pattern: str) -> None:
    with pytest.raises(ToolError):
        Glob.of(pattern)


@pytest.mark.threat(point=10)
def test_no_pattern_is_catastrophic() -> None:
    assert not Glob.of("*a" * 120 + "b").matches("a" * 255)
    deep = "/".join(["a"] * 100)
    assert not Glob.of("/".join(["**", "a"] * 16) + "/b").matches(deep)


PARTS = st.lists(st.sampled_from(["a", "b", "ab", "**", "*", "a*"]), min_size=1, max_size=6)


@given(PARTS, st.lists(st.sampled_from(["a", "b", "ab", "ba"]), min_size=1, max_size=6))
def test_it_matches_what_the_regular_expression_does(parts: list[str], names: list[str]) -> None:
    expected = "".join(
        "(?:[^/]+/)*" if part == "**" else part.replace("*", "[^/]*") + "/" for part in parts
    )
    path = "/".join(names)
    glob = Glob.of("/".join(parts))
    assert glob.matches(path) is (re.fullmatch(expected, f"{path}/") is not None)
