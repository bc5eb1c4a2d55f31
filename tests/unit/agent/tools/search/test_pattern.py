"""Patterns: what POSIX `grep` finds is what the pattern says, or the pattern is refused."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.search.pattern import translate

GREPS = [["grep"], ["busybox", "grep"]]
ENV = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}


def found(grep: list[str], pattern: str, lines: list[str]) -> list[str]:
    """Return the lines that match."""
    translated = translate(pattern)
    command = [*grep, *(["-i"] if translated.ignores_case else []), "-E", "-e", translated.text]
    text = "".join(f"{line}\n" for line in lines).encode()
    done = subprocess.run(command, input=text, env=ENV, capture_output=True, check=False)
    assert done.returncode < 2, done.stderr
    assert done.stderr == b""
    return done.stdout.decode().split("\n")[:-1]


@pytest.mark.parametrize("grep", GREPS, ids=["host", "busybox"])
@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"def \w+\(self", "def run_1(self)", "def run 1(self"),
        (r"\d{2,3}$", "a12", "a1"),
        (r"^\s+return", "\t return", "return"),
        (r"\bfoo\b", "a foo.", "food"),
        (r"colou?r", "color", "colr"),
        (r"a.*?b", "axxb", "ba"),
        (r"(?:ab|cd)+x", "abcdx", "acx"),
        (r"(?P<name>a)(?<n2>b)", "ab", "a"),
        (r"(?i)Error", "ERROR", "eror"),
        (r"interface\{\}", "interface{}", "interface"),
        (r"x{", "x{", "x"),
        (r"a\.b", "a.b", "axb"),
        (r"[\w.-]+@[^\s@]+", "a.b-c@d", "@"),
        (r"[^\d]", "x", "1"),
        (r"[\D]", "x", "1"),
        (r"^[\s\S]+z", "a z", "z"),
        (r"[]a]", "]", "b"),
        (r"[\]\[^-]", "^", "a"),
        (r"[\[\]]", "[", "a"),
        (r"x[^]]y", "x[y", "x]y"),
        (r"[[:upper:]_]", "A", "a"),
        (r"[^[:^digit:]]", "1", "a"),
        (r"\x41\u{42}", "AB", "ab"),
        (r"\tx", "\tx", "tx"),
        (r"é+$", "aéé", "ae"),
        (r"[éa]x", "éx", "ex"),
        (r"\\n", r"\n", "n"),
        (r"\$\{HOME\}", "${HOME}", "HOME"),
        (r"[^^]x", "ax", "^x"),
        (r"^[\^]$", "^", "a"),
        (r"[^\S\n]x", " x", "ax"),
        (r"[\^-]", "-", "a"),
        (r"[\]a\-\[^]", "^", "b"),
        (r"[aé]x", "éx", "bx"),
        (r"\<foo\>", "a foo.", "food"),
        (r"\Aab\z", "ab", "abc"),
        ("", "anything", None),
    ],
)
def test_a_pattern_finds_its_lines(
    grep: list[str], pattern: str, matching: str, other: str | None
) -> None:
    if shutil.which(grep[0]) is None:
        pytest.skip(f"apt-get install {grep[0]}")
    lines = [matching, *([] if other is None else [other])]
    assert found(grep, pattern, lines) == [matching]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"a(?=b)", "look-around"),
        (r"(?<!a)b", "look-around"),
        (r"(a)\1", r"\1 is not supported"),
        (r"\p{L}", r"\p is not supported"),
        ("a\nb", "line end without multiline"),
        (r"a\nb", "line end without multiline"),
        ("(a", "not closed"),
        ("a)", "without its ("),
        ("[a", "not closed"),
        ("*a", "nothing to repeat"),
        ("a**", "nothing to repeat"),
        ("a{256}", "a count must"),
        ("a{3,2}", "a count must"),
        ("((a{99}){99}){99}", "too large together"),
        ("a\\", "ends in a backslash"),
        ("[z-a]", "in order"),
        ("[^é]", "outside ASCII"),
        ("[a&&b]", "set operations"),
        ("[[:nope:]]", "no class"),
        ("a(?i)b", "at its beginning"),
        ("\ud800", "surrogate"),
        ("x" * 2001, "over 2000"),
    ],
)
def test_what_posix_can_not_say_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ToolError, match=re.escape(why)):
        translate(pattern)


@pytest.mark.parametrize("pattern", [r"a\zb", r"\A", "a$b"])
def test_what_a_whole_file_can_not_be_searched_for_is_refused(pattern: str) -> None:
    with pytest.raises(ToolError, match="with multiline"):
        translate(pattern, multiline=True)


ATOMS = st.sampled_from(
    [
        *(
            "a",
            "b",
            "-",
            r"\.",
            ".",
            r"\w",
            r"\d",
            r"\S",
            "[ab]",
            "[^a]",
            r"[\w-]",
            r"[^\s.]",
            "(a|b)",
        ),
        *("[a-f]", "[^0-5-]", r"[\]\[]", r"[\\^]", r"[^\D_]", r"[\x61\t]", "[:=]", r"[\s\S]"),
    ]
)
PATTERNS = st.lists(
    st.tuples(ATOMS, st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}", "*?"])), max_size=5
).map(lambda parts: "".join(atom + quantifier for atom, quantifier in parts))
LINES = st.lists(st.text("ab-. 1\t", max_size=8), min_size=1, max_size=6)


@settings(max_examples=60)
@given(st.tuples(st.sampled_from(["", "^"]), PATTERNS, st.sampled_from(["", "$"])), LINES)
def test_grep_finds_what_python_finds(parts: tuple[str, str, str], lines: list[str]) -> None:
    pattern = "".join(parts)
    assert found(["grep"], pattern, lines) == [line for line in lines if re.search(pattern, line)]


@settings(max_examples=60)
@given(PATTERNS, LINES)
def test_grep_finds_in_a_file_what_python_finds(pattern: str, lines: list[str]) -> None:
    text = "\n".join(lines)
    translated = translate(pattern, multiline=True)
    given_bytes = os.fsencode(translated.text)
    command = [b"grep", b"-z", b"-c", b"-E", b"-e", given_bytes]
    done = subprocess.run(command, input=text.encode(), env=ENV, capture_output=True, check=False)
    is_there = re.search(pattern, text, re.DOTALL) is not None
    assert (done.stdout.strip(), done.stderr) == (b"1" if is_there and text else b"0", b"")


@given(st.text(max_size=30))
def test_any_text_is_translated_or_refused(pattern: str) -> None:
    try:
        translated = translate(pattern)
    except ToolError:
        return
    assert "\n" not in translated.text
    assert "\0" not in translated.text


@settings(max_examples=60)
@given(st.text("ab[](){}*+?|^$.\\-&é \t", max_size=20))
def test_an_escaped_text_finds_itself(text: str) -> None:
    assume("\n" not in text)
    pattern = "".join(f"\\{each}" if not each.isalnum() else each for each in text)
    assert found(["grep"], pattern, [f"x{text}y"]) == [f"x{text}y"]
