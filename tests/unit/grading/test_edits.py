"""Edits of test files: tests that fail, in a file that is otherwise the same."""

from __future__ import annotations

import ast
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.grading.edits import Source, changed, failing


def made_to_fail(text: str, *, seed: int = 0) -> str:
    source = Source.of(text)
    chance = random.Random(seed)
    return source.edited(
        [edit for each in source.functions for edit in changed(source, each, chance)]
    )


def outcome(text: str, **names: object) -> str:
    """Run the first test of a file."""
    space: dict[str, object] = dict(names)
    exec(compile(text, "test", "exec"), space)  # noqa: S102
    test = next(value for name, value in space.items() if name.startswith("test_"))
    assert callable(test)
    try:
        test()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return "passed"


PASSING = [
    "assert value == 'v1.1.0-dev.0'",
    "assert 'v1.1.0-dev.0' == value",
    "assert [1, 'two'] == [1, 'two']",
    "assert {'a': 1} == {'a': 1}",
    "assert 2 + 2 == 4",
    "assert 0.5 == 0.5",
    "assert (None, True) == (None, True)",
    "assert b'abc' == b'abc'",
    "assert value == ''.join(value)",
    "assert '.0-dev' in value",
    "assert 'zzz' not in value",
    "assert not None",
    "assert value",
    "assert value is not None",
    "assert value is value",
    "assert len(value) > 3",
    "assert (\n        value\n        and value != ''\n    )",
    "assert value == '''v1.1.0-dev.0'''",
    "assert value == 'v1.' '1.0-dev.0'",
    "assert 'ä\\t' == 'ä\\t', 'why'",
]


@pytest.mark.parametrize("statement", PASSING)
@pytest.mark.parametrize("seed", range(3))
def test_a_test_that_passes_fails_when_changed(statement: str, seed: int) -> None:
    text = f"def test_x():\n    {statement}\n"
    assert outcome(text, value="v1.1.0-dev.0") == "passed"
    edited = made_to_fail(text, seed=seed)
    assert outcome(edited, value="v1.1.0-dev.0").startswith("AssertionError")
    assert edited.count("\n") == text.count("\n")


def test_an_object_that_equals_everything_passes_when_changed() -> None:
    class Equal(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    assert (
        outcome(made_to_fail("def test_x():\n    assert value == 'abc'\n"), value=Equal())
        == "passed"
    )


def test_unittest_and_exceptions_are_changed_as_well() -> None:
    edited = made_to_fail(
        "class T:\n"
        "    def test_x(self):\n"
        "        self.assertEqual(f(), 3)\n"
        "        self.assertTrue(g)\n"
        "        with self.assertRaises(ValueError): h()\n"
        "        with pytest.raises(errors.Wrong, match='a'): h()\n"
    )
    assert "assertEqual(f(), 3)" not in edited
    assert "self.assertFalse(g)" in edited
    assert "assertRaises(BufferError)" in edited
    assert "pytest.raises(BufferError, match='a')" in edited


def test_every_test_fails_at_its_end() -> None:
    source = Source.of(
        "def test_x():\n    for a in b:\n        pass\n# ä\nasync def test_y(): pass\n"
    )
    edited = source.edited([failing(source, each, "why") for each in source.functions])
    assert edited == (
        'def test_x():\n    for a in b:\n        pass\n    raise AssertionError("why")\n'
        '# ä\nasync def test_y(): pass; raise AssertionError("why")\n'
    )


@pytest.mark.parametrize(
    "text", ["def (", "x\r\n", "\0", "(" * 5000, "-" * 9000 + "1", "print 'a'"]
)
def test_what_can_not_be_parsed_has_no_tests(text: str) -> None:
    assert Source.of(text).functions == ()


@given(
    st.text(min_size=1, max_size=30), st.sampled_from(["==", "in", "!="]), st.integers(0, 1 << 30)
)
def test_what_is_changed_in_any_text_can_be_parsed(value: str, operator: str, seed: int) -> None:
    text = f"def test_x():\n    assert {value!r} {operator} value\n"
    edited = made_to_fail(text, seed=seed)
    assert ast.dump(ast.parse(edited)) != ast.dump(ast.parse(text))
