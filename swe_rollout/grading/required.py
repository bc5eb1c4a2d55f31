"""Read what a statement of a test requires. Pure: the code comes from datasets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from swe_rollout.grading.edits import EQUALITIES, HOLE
from swe_rollout.grading.wants import Close, Contains, Truth, Want

_TRUTHS: Final = {
    "assertTrue": Truth.TRUE,
    "assertFalse": Truth.FALSE,
    "assertIsNone": Truth.IS_NONE,
    "assertIsNotNone": Truth.NOT_NONE,
}
_ARRAYS: Final = {
    "assert_array_equal": Close(0, 0.0, 0.0),
    "assert_equal": Close(0, 0.0, 0.0),
    "assert_allclose": Close(0, 1e-7, 0.0),
    "assert_almost_equal": Close(0, 0.0, 1.5e-7),
    "assert_array_almost_equal": Close(0, 0.0, 1.5e-6),
}
"""Functions of `numpy.testing`, and the errors that they allow."""
_ALMOST: Final = Close(0, 0.0, 5e-8)
"""What `assertAlmostEqual` allows."""
_PLAIN_PATTERN: Final = re.compile(r"(?:[^\\.^$*+?{}\[\]|()]|\\[^\w\s])*")
"""Matches regular expressions that match one text alone."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check that a passing run makes. It compares `sides`, or looks at `inner`."""

    node: ast.expr
    """What becomes a call, if `inner` is looked at."""
    sides: tuple[ast.expr, ...] = ()
    inner: ast.expr | None = None
    call: str = ""
    """How the hole is called, up to its number's place `{}`."""
    want: Want | None = None
    operand: ast.expr | None = None
    """The expected value that completes `want`."""


def checks(statement: ast.stmt) -> Iterator[Check]:
    """Yield the checks of a statement."""
    match statement:
        case ast.Assert(test=test):
            yield from _conditions(test)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name)) as call) if not any(
            isinstance(each, ast.Starred) for each in call.args
        ):
            yield from _called(call, name)
        case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if name in _ARRAYS:
            yield from _called(call, name)
        case ast.With(items=items):
            for item in items:
                yield from _raising(item.context_expr)
        case _:
            pass


def _conditions(test: ast.expr) -> Iterator[Check]:
    match test:
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            isinstance(each, ast.Eq) for each in ops
        ) and not any(_is_single(each) for each in (left, *others)):
            yield Check(test, sides=(left, *others))
        case ast.BoolOp(op=ast.And(), values=values):
            for value in values:
                yield from _conditions(value)
        case ast.Compare(
            left=ast.Constant() | ast.Name() as part, ops=[ast.In()], comparators=[whole]
        ):
            yield Check(test, (), whole, f"{HOLE}.seen({{}}", Contains(""), part)
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as op], comparators=[right]):
            want = _singleton(right, op)
            yield _truth(test, test, Truth.TRUE) if want is None else _truth(test, left, want)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _truth(test, operand, Truth.FALSE)
        case ast.Constant():
            pass
        case _:
            yield _truth(test, test, Truth.TRUE)


def _truth(node: ast.expr, inner: ast.expr, want: Truth) -> Check:
    return Check(node, (), inner, f"{HOLE}.truth({{}}", want)


def _is_single(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


def _singleton(node: ast.expr, op: ast.Is | ast.IsNot) -> Truth | None:
    match node, op:
        case ast.Constant(value=None), ast.Is():
            return Truth.IS_NONE
        case ast.Constant(value=None), ast.IsNot():
            return Truth.NOT_NONE
        case ast.Constant(value=True), ast.Is():
            return Truth.IS_TRUE
        case ast.Constant(value=False), ast.Is():
            return Truth.IS_FALSE
        case _:
            return None


def _called(call: ast.Call, name: str) -> Iterator[Check]:
    own = isinstance(call.func, ast.Attribute) and _is_self(call.func.value)
    match call.args:
        case [first, second, *_] if own and name in EQUALITIES:
            # Those that name a type refuse an object in its place, but not inside of it.
            inside = (ast.List, ast.Tuple, ast.Dict, ast.Name)
            typed = name not in ("assertEqual", "assertEquals")
            sides = tuple(e for e in (first, second) if not typed or isinstance(e, inside))
            yield Check(call, sides=sides)
        case [value, *_] if own and name in _TRUTHS:
            yield _truth(call, value, _TRUTHS[name])
        case [part, whole, *_] if own and name == "assertIn":
            yield Check(call, (), whole, f"{HOLE}.seen({{}}", Contains(""), part)
        case [first, second] if own and name == "assertAlmostEqual" and not call.keywords:
            yield Check(call, (), first, f"{HOLE}.seen({{}}", _ALMOST, second)
        case [first, second] if not own and name in _ARRAYS and not call.keywords:
            yield Check(call, (), first, f"{HOLE}.seen({{}}", _ARRAYS[name], second)
        case _:
            pass


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _raising(call: ast.expr) -> Iterator[Check]:
    """Yield the check of an error's message."""
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="pytest"), attr="raises") | ast.Name(id="raises"),
            args=[error],
            keywords=[ast.keyword(arg="match", value=text)],
        ):
            yield from _message(call, error, text, ast.unparse(call.func))
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="self"), attr="assertRaisesRegex"),
            args=[error, text],
            keywords=[],
        ):
            yield from _message(call, error, text, "self.assertRaises")
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="self"), attr="assertRaisesMessage"),
            args=[error, ast.Constant(value=str()) as text],
            keywords=[],
        ):
            yield Check(
                call, (), error, f"{HOLE}.raising({{}}, self.assertRaises", Contains(""), text
            )
        case _:
            pass


def _message(call: ast.Call, error: ast.expr, text: ast.expr, raises: str) -> Iterator[Check]:
    match text:
        case ast.Constant(value=str() as pattern) if _PLAIN_PATTERN.fullmatch(pattern):
            want = Contains(re.sub(r"\\(.)", r"\1", pattern))
            yield Check(call, (), error, f"{HOLE}.raising({{}}, {raises}", want)
        case _:
            pass
