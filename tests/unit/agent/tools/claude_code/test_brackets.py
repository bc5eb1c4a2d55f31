"""Character classes: the bracket expression of POSIX holds what the class of the pattern does."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.search.char_class import read_class

ALL = "".join(chr(code) for code in range(1, 128))
ITEMS = st.sampled_from(
    (
        *("a", "z", "0", "_", "-", "^", ".", r"\]", r"\[", r"\\", r"\d", r"\w", r"\s", r"\D"),
        *(r"\S", "a-f", "0-5", r"\-", r"\x41", r"\t", ":", "="),
    )
)
CLASSES = st.tuples(st.sampled_from(["", "^"]), st.lists(ITEMS, min_size=1, max_size=5)).map(
    lambda parts: f"[{parts[0]}{''.join(parts[1])}]"
)


@settings(max_examples=80)
@given(CLASSES)
def test_it_holds_the_same_characters(pattern: str) -> None:
    assume(not re.search(r"--|-\\[dwsDS]|\\[dwsDS]-|[a-z0-9]-[^\]]*-", pattern))
    try:
        compiled = re.compile(pattern, re.ASCII)
        expected = [each for each in ALL if compiled.fullmatch(each) and each != "\n"]
    except re.error:
        return
    try:
        written, end = read_class(pattern, 1)
        bracket = written.ere()
    except ToolError:
        # A range that Python takes for three characters, or a class of nothing.
        return
    assert end == len(pattern)
    lines = "".join(f"{each}\n" for each in ALL if each != "\n").encode()
    done = subprocess.run(
        ["grep", "-E", "-x", "-e", bracket],
        input=lines,
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )
    assert done.stdout.decode().split("\n")[:-1] == expected


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("[a]", "[a]"),
        ("[^]", ""),
        (r"[\^]", r"\^"),
        (r"[\^-]", "[-^]"),
        (r"[\]a\-\[^]", "[]a[^-]"),
        (r"[\s\S]", "."),
        ("[é]", "(é)"),
        ("[aé]", "([a]|é)"),
    ],
)
def test_special_characters_stand_where_they_are_plain(pattern: str, written: str) -> None:
    if not written:
        with pytest.raises(ToolError, match="not closed"):
            read_class(pattern, 1)
        return
    assert read_class(pattern, 1)[0].ere() == written
