"""Find the expected values that can be taken out of a test. Pure.

A value can be taken out if nothing but an asserted equality reads it, whatever the code under test
returns: then a test that passes with it passes without it, too. Test files come from datasets and
are only parsed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from swe_rollout.grading.edits import EQUALITIES, Source, TestFunction

_MOST: Final = 500
"""The most values that are taken out of one test."""

Value = str | bytes | int | float


@dataclass(frozen=True, slots=True)
class Hole:
    """An expected value, at bytes `[start, end)` of a test file."""

    start: int
    end: int
    value: Value
    lines: int
    """The number of line ends in it."""
    is_new: bool = True
    """Whether the base lacks the statement or the row around it, so no agent could read it."""


def find_holes(source: Source, function: TestFunction, base: str) -> tuple[Hole, ...]:
    """Return the values that can be taken out of a test; `base` is the file's text in the base."""
    reads = _Reads(function)
    offsets = source.offsets()
    data, old = source.text.encode(), base.encode(errors="replace")
    found: dict[int, Hole] = {}
    for leaf, around in reads.leaves():
        value = _value(leaf)
        if value is None:
            continue
        start, end = source.span(leaf, offsets)
        first, last = source.span(around, offsets)
        lines = (leaf.end_lineno or leaf.lineno) - leaf.lineno
        found[start] = Hole(start, end, value, lines, data[first:last] not in old)
        if len(found) == _MOST:
            break
    return tuple(found[start] for start in sorted(found))


class _Reads:
    """The asserted equalities of a test, and the names that nothing else reads."""

    def __init__(self, function: TestFunction) -> None:
        self._function = function
        self._sides = [
            (side, statement)
            for statement in _statements(function.body)
            for side in _sides(statement)
        ]
        asserted = {id(leaf) for side, _ in self._sides for leaf in _leaves(side) if _is_name(leaf)}
        self._names = {
            name for name, nodes in _uses(function).items() if nodes and nodes <= asserted
        }

    def leaves(self) -> Iterator[tuple[ast.expr, ast.expr | ast.stmt]]:
        """Yield each expected value, with the statement or the row that holds it."""
        for side, statement in self._sides:
            for leaf in _leaves(side):
                yield leaf, statement
        for name, value, around in _bindings(self._function):
            if name in self._names:
                for leaf in _leaves(value):
                    yield leaf, around


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that every passing run of the test executes."""
    for node in body:
        match node:
            case ast.With() | ast.AsyncWith():
                yield from _statements(node.body)
            case ast.For(iter=ast.List() | ast.Tuple(), orelse=[]):
                yield node
                yield from _statements(node.body)
            case _:
                yield node


def _sides(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield both sides of each equality that the statement requires."""
    match statement:
        case ast.Assert(test=test):
            yield from _required(test)
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name), args=args)
        ) if name in EQUALITIES and len(args) > 1:
            yield from args[:2]
        case _:
            pass


def _required(test: ast.expr) -> Iterator[ast.expr]:
    match test:
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            isinstance(each, ast.Eq) for each in ops
        ):
            yield from (left, *others)
        case ast.BoolOp(op=ast.And(), values=values):
            for value in values:
                yield from _required(value)
        case _:
            pass


def _leaves(value: ast.expr) -> Iterator[ast.expr]:
    """Yield the plain values and names in an expected value."""
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            for element in elements:
                yield from _leaves(element)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            for element in values:
                yield from _leaves(element)
        case ast.Constant() | ast.UnaryOp(operand=ast.Constant()) | ast.Name():
            yield value
        case _:
            pass


def _is_name(leaf: ast.expr) -> bool:
    return isinstance(leaf, ast.Name)


def _value(leaf: ast.expr) -> Value | None:
    if isinstance(leaf, ast.Name):
        return None
    try:
        value: object = ast.literal_eval(leaf)
    except ValueError:
        return None
    match value:
        case bool():
            return None
        case float() if not math.isfinite(value):
            return None
        case str() | bytes() | int() | float():
            return value
        case _:
            return None


def _uses(function: TestFunction) -> dict[str, frozenset[int]]:
    """Return where each name is read, for names that are bound once and in this function alone."""
    reads: dict[str, set[int]] = {}
    stores: dict[str, int] = {}
    shared = set[str]()
    for node in ast.walk(function):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                reads.setdefault(name, set()).add(id(node))
            case ast.Name(id=name) | ast.arg(arg=name):
                stores[name] = stores.get(name, 0) + 1
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                shared.update(names)
            case _:
                pass
    return {
        name: frozenset(nodes)
        for name, nodes in reads.items()
        if stores.get(name) == 1 and name not in shared
    }


def _bindings(function: TestFunction) -> Iterator[tuple[str, ast.expr, ast.expr | ast.stmt]]:
    """Yield each name with a value that it is bound to, and the statement or row around that."""
    for statement in _statements(function.body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value, statement
            case ast.For(target=target, iter=ast.List(elts=rows) | ast.Tuple(elts=rows)):
                yield from _columns(_target_names(target), rows)
            case _:
                pass
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(
                func=ast.Attribute(attr="parametrize"),
                args=[names, ast.List(elts=rows) | ast.Tuple(elts=rows)],
                keywords=keywords,
            ) if all(each.arg == "ids" for each in keywords):
                yield from _columns(_parameter_names(names), rows)
            case _:
                pass


def _columns(
    names: list[str], rows: list[ast.expr]
) -> Iterator[tuple[str, ast.expr, ast.expr | ast.stmt]]:
    for row in rows:
        match row:
            case _ if len(names) == 1:
                yield names[0], row, row
            case ast.Tuple(elts=values) | ast.List(elts=values) if len(values) == len(names):
                for name, value in zip(names, values, strict=True):
                    yield name, value, row
            case _:
                pass


def _target_names(target: ast.expr) -> list[str]:
    match target:
        case ast.Name(id=name):
            return [name]
        case ast.Tuple(elts=elements):
            return [each.id if isinstance(each, ast.Name) else "" for each in elements]
        case _:
            return []


def _parameter_names(names: ast.expr) -> list[str]:
    match names:
        case ast.Constant(value=str() as text):
            return [name.strip() for name in text.split(",") if name.strip()]
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return [
                each.value if isinstance(each, ast.Constant) and isinstance(each.value, str) else ""
                for each in elements
            ]
        case _:
            return []
