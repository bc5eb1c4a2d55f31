"""Which expected values can be taken out of a test."""

from __future__ import annotations

import pytest

from swe_rollout.grading.edits import Source
from swe_rollout.grading.holes import find_holes


def values(text: str, *, base: str = "") -> list[object]:
    source = Source.of(text)
    return [
        hole.value
        for function in source.functions
        for hole in find_holes(source, function, base)
        if hole.is_new
    ]


def of_body(*lines: str) -> list[object]:
    return values("def test_x(self):\n" + "".join(f"    {line}\n" for line in lines))


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["assert f() == 'a'"], ["a"]),
        (["assert 'a' == f()"], ["a"]),
        (["assert f() == g() == 2"], [2]),
        (["assert f() == -2.5 and g() == b'x'"], [-2.5, b"x"]),
        (["assert f() == [1, ('b', {'k': 3})]"], [1, "b", 3]),
        (["self.assertEqual(f(), 'a', 'a message')"], ["a"]),
        (["wanted = ['a', 'b']", "assert f() == wanted"], ["a", "b"]),
        (["for a, e in [(1, 'x'), (2, 'y')]:", "    assert f(a) == e"], ["x", "y"]),
        (["with g():", "    assert f() == '''a", "    b'''"], ["a\n        b"]),
        (["assert f() == 'a' 'b'"], ["ab"]),
    ],
)
def test_a_value_that_only_an_asserted_equality_reads(
    lines: list[str], found: list[object]
) -> None:
    assert of_body(*lines) == found


@pytest.mark.parametrize(
    "lines",
    [
        ["assert f('a')"],
        ["assert f() != 'a'"],
        ["assert f() in ('a', 'b')"],
        ["assert f() == 'a' or f() == 'b'"],
        ["assert not f() == 'a'"],
        ["assert f() == f'{a} b'"],
        ["assert f() is True", "assert f() == None", "assert f() == True"],
        ["assert f() == {'a', 'b'}", "assert f() == {**a, 'b': 1}"],
        ["if a:", "    assert f() == 'a'"],
        ["while a:", "    assert f() == 'a'"],
        ["for a in f():", "    assert a == 'a'"],
        ["try:", "    assert f() == 'a'", "except AssertionError:", "    pass"],
        ["def g():", "    assert f() == 'a'"],
        ["a = 'a'", "assert f(a) == a"],
        ["a = 'a'", "a = 'b'", "assert f() == a"],
        ["a = 'a'", "g(lambda: a)", "assert f() == a"],
        ["self.assertCountEqual(f(), ['a'])", "self.assertNotEqual(f(), 'a')"],
        ["assert f() == 1e999", "assert f() == 'a' + 'b'"],
    ],
)
def test_what_an_honest_patch_may_read_or_meet_otherwise_stays(lines: list[str]) -> None:
    assert of_body(*lines) == []


@pytest.mark.parametrize(
    ("decorator", "found"),
    [
        ("'a, e', [('x', 'X'), ('y', 'Y')]", ["X", "Y"]),
        ("('a', 'e'), (('x', 'X'), ['y', 'Y']), ids=['p', 'q']", ["X", "Y"]),
        ("'a, e', [('x', 'X'), pytest.param('y', 'Y', id='q')]", ["X"]),
        ("'a, e', [('x', 'X')], indirect=['e']", []),
        ("'a, e', ROWS", []),
    ],
)
def test_parameters_that_are_only_compared(decorator: str, found: list[object]) -> None:
    text = f"@pytest.mark.parametrize({decorator})\ndef test_x(a, e):\n    assert f(a) == e\n"
    assert values(text) == found
    assert values(text.replace("f(a)", "f(a, e)")) == []


def test_what_the_base_has_is_known() -> None:
    old = "def test_x():\n    assert f() == 'a'\n"
    assert values(old + "    assert g() == 'b'\n", base=old) == ["b"]


@pytest.mark.parametrize("text", ["assert " + "f(" * 150 + ")" * 150 + " == 1", "x = " + "[" * 90])
def test_deep_and_broken_files_have_none_or_few(text: str) -> None:
    assert len(values(f"def test_x():\n    {text}\n")) <= 1
