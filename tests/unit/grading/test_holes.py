"""Which expected values can be taken out of a test."""

from __future__ import annotations

import ast

import pytest

from swe_rollout.grading.edits import Source
from swe_rollout.grading.holes import find_holes
from swe_rollout.grading.wants import Close, Computed, Contains, Equal, Filed, Truth, Want


def wants(text: str, *, base: str = "") -> list[Want]:
    source = Source.of(text)
    return [
        hole.want
        for function in source.functions
        for hole in find_holes(source, function, base)
        if hole.is_new
    ]


def values(text: str, *, base: str = "") -> list[object]:
    return [want.value for want in wants(text, base=base) if isinstance(want, Equal)]


def body(*lines: str) -> str:
    return "def test_x(self):\n" + "".join(f"    {line}\n" for line in lines)


def of_body(*lines: str) -> list[object]:
    return values(body(*lines))


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
        (["self.assertListEqual(f(), ['a'])", "self.assertMultiLineEqual(f(), 'b')"], ["a"]),
    ],
)
def test_a_value_that_only_an_asserted_equality_reads(
    lines: list[str], found: list[object]
) -> None:
    assert of_body(*lines) == found


COMPUTED = Computed()


@pytest.mark.parametrize(
    ("lines", "found", "taken_out"),
    [
        (["n = 5", "assert f(n) == n + 1"], [COMPUTED], "n + 1"),
        (["assert f() == f'{3} b'", "assert f() == {'a', 'b'}"], [COMPUTED] * 2, "3"),
        (["assert f() == str(5) * 2", "assert f() == 'a' + 'b'"], [COMPUTED] * 2, "5"),
        (["assert f() == [x for x in range(3)]"], [COMPUTED], "range"),
        (["a = 'a'", "assert f(a) == a"], [COMPUTED], "== a"),
        (["assert 'a' in (", "        f())"], [Contains("a")], "'a'"),
        (["a = '''x", "'''", "assert a in f()"], [Contains("x\n    ")], "x\n"),
        (["self.assertIn('a', f(), 'why')"], [Contains("a")], "'a'"),
        (["assert f()", "assert f() != 1"], [Truth.TRUE] * 2, "never"),
        (["assert f() in ('a', 'b')", "assert f() == None"], [Truth.TRUE] * 2, "never"),
        (["assert (not f()), 'why'"], [Truth.FALSE], "not f"),
        (["assert f() is None and f() is True"], [Truth.IS_NONE, Truth.IS_TRUE], "None"),
        (
            ["assert (f()) is not None", "assert f() is False"],
            [Truth.NOT_NONE, Truth.IS_FALSE],
            "is",
        ),
        (["self.assertTrue(a for a in f())"], [Truth.TRUE], "assertTrue"),
        (["self.assertFalse(f(), 'why')"], [Truth.FALSE], "assertFalse"),
        (["assert f() == approx(1.5)"], [Close(1.5, 1e-6, 1e-12)], "1.5"),
        (["assert f() == pytest.approx([1], abs=2)"], [Close([1], 0.0, 2)], "[1]"),
        (["np.testing.assert_allclose(f(), np.array([1.5]))"], [Close([1.5], 1e-7, 0.0)], "1.5"),
        (["self.assertAlmostEqual(f(), 1.5)"], [Close(1.5, 0.0, 5e-8)], "1.5"),
        (["with pytest.raises(E, match=r'a \\(b\\)'):", "    f()"], [Contains("a (b)")], "match"),
        (["with self.assertRaisesRegex(E, 'a b') as e:", "    f()"], [Contains("a b")], "a b"),
        (["with self.assertRaisesMessage(E, 'a.b'):", "    f()"], [Contains("a.b")], "a.b"),
    ],
)
def test_other_checks(lines: list[str], found: list[Want], taken_out: str) -> None:
    text = body(*lines)
    assert wants(text) == found
    source = Source.of(text)
    holes = find_holes(source, source.functions[0], "")
    edited = source.edited([edit for hole in holes for edit in hole.edits(7)])
    ast.parse(edited)
    assert edited.count("\n") == text.count("\n")
    assert taken_out not in edited.replace("is_", "")


@pytest.mark.parametrize(
    "lines",
    [
        ["rows = []", "f(rows)", "assert rows == g()"],
        ["assert f() == g().x", "assert f() == {**g(), 'b': 1}"],
        ["assert f() == max(1, 2)", "max = f()"],
        ["for a in [g(), 1]:", "    assert f() == a", "    f(a)"],
        ["a = 'a'", "a = 'b'", "assert f() == a"],
        ["with pytest.raises(E, match='a.b'):", "    f()"],
        ["with pytest.raises(E, match=g()):", "    f()"],
        ["with pytest.raises(E):", "    f()"],
        ["assert_allclose(f(), g())", "assert_allclose(f(), [float('nan')])"],
        ["assert True, 'why'", "assert f() == 1e999"],
        ["a = 'a'", "g(a)", "assert a in f()"],
    ],
)
def test_what_the_code_under_test_may_decide_is_not_expected(lines: list[str]) -> None:
    assert wants(body(*lines)) == []


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


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (["assert f() == (DATA / 'a.txt').read_text().strip()"], 1),
        (["wanted = open('a').read()", "self.assertEqual(f(), wanted)"], 1),
        (["wanted = open('a').read()", "assert f() == wanted", "assert g() == wanted"], 0),
        (["wanted = open('a').read()", "g(wanted)", "assert f() == wanted"], 0),
        (["out = p.read_text()", "assert out == 'a'"], 0),
        (["wanted = 'a'", "assert p.read_text() == wanted"], 0),
        (["assert p.read_text() == q.read_text()"], 0),
    ],
)
def test_a_file_is_read_where_nothing_else_is_expected(lines: list[str], count: int) -> None:
    assert sum(isinstance(want, Filed) for want in wants(body(*lines))) == count


@pytest.mark.parametrize("text", ["assert " + "f(" * 150 + ")" * 150 + " == 1", "x = " + "[" * 90])
def test_deep_and_broken_files_have_none_or_few(text: str) -> None:
    assert len(values(f"def test_x():\n    {text}\n")) <= 1


def test_many_checks_of_many_values_cost_no_more_than_their_sum() -> None:
    """Each took a minute or more."""
    rows = ["for e in [" + "x.y, " * 3000 + "]:"]
    assert wants(body(*rows, *["    assert f() == e"] * 1500)) == []
    names = [f"e{each} = g()\n    assert f() == e{each}" for each in range(4000)]
    assert wants(body(*names)) == []
