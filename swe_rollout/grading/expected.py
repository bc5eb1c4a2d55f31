"""Read what a test's expected values are made of. Pure: the code comes from datasets."""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from swe_rollout.grading.edits import TestFunction
from swe_rollout.grading.wants import Value

_FUNCTIONS: Final = frozenset(
    {
        "abs", "bool", "bytes", "chr", "dedent", "dict", "float", "frozenset", "int", "len", "list",
        "max", "min", "ord", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum",
        "textwrap", "tuple", "zip",
    }
)  # fmt: skip


def literal(node: ast.expr) -> Value | None:
    """Return the text or number that an expression is, or None."""
    value = plain(node)
    match value:
        case bool():
            return None
        case str() | bytes() | int() | float():
            return value
        case _:
            return None


def plain(node: ast.expr) -> object:
    """Return the finite text, number, or list of these that an expression is, or None."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="array"), args=[array]
        ):
            return plain(array)
        case ast.Constant() | ast.UnaryOp(operand=ast.Constant()) | ast.List() | ast.Tuple():
            try:
                value: object = ast.literal_eval(node)
            except (ValueError, TypeError, RecursionError):
                return None
            return value if _is_finite(value) else None
        case _:
            return None


def _is_finite(value: object) -> bool:
    match value:
        case list() | tuple():
            return all(_is_finite(each) for each in value)
        case float():
            return math.isfinite(value)
        case _:
            return value is not None


def is_closed(node: ast.expr, names: Collection[str]) -> bool:
    """Return whether an expression consists of literals and of `names` that stand for literals.

    What it evaluates to does not depend on the code under test then. Constants that are no text or
    number don't count.
    """
    if isinstance(node, ast.Constant):
        return node.value is not None and not isinstance(node.value, bool)
    parts = [*ast.walk(node)]
    targets = [part.target for part in parts if isinstance(part, ast.comprehension)]
    bound = {name.id for each in targets for name in ast.walk(each) if isinstance(name, ast.Name)}
    return all(_is_pure(part, bound.union(names)) for part in parts)


def _is_pure(part: ast.AST, names: Collection[str]) -> bool:
    match part:
        case ast.Name(id=name):
            return name in names
        case ast.Await() | ast.Yield() | ast.YieldFrom() | ast.NamedExpr() | ast.Lambda():
            return False
        case _:
            return True


def reads_file(node: ast.expr) -> bool:
    """Return whether an expression may be the whole text of a file."""
    match node:
        case ast.Call(func=ast.Attribute(attr="strip" | "rstrip", value=inner)):
            return reads_file(inner)
        case ast.Call(func=ast.Attribute(attr="read_text" | "read_bytes" | "read")):
            return True
        case _:
            return False


def pure_functions(bound: Collection[str]) -> frozenset[str]:
    """Return functions whose results depend on their arguments alone, but for rebound names."""
    return _FUNCTIONS.difference(bound)


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that every passing run of the test executes."""
    for node in body:
        match node:
            case ast.With() | ast.AsyncWith():
                yield node
                yield from statements(node.body)
            case ast.For(iter=ast.List() | ast.Tuple(), orelse=[]):
                yield node
                yield from statements(node.body)
            case _:
                yield node


def uses(function: TestFunction) -> dict[str, frozenset[int]]:
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


def bindings(function: TestFunction) -> Iterator[tuple[str, ast.expr, ast.expr | ast.stmt]]:
    """Yield each name with a value that it is bound to, and the statement or row around that."""
    for statement in statements(function.body):
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
    """Yield each name with its values; a row that can't be read is the value of all names."""
    for row in rows:
        match row:
            case _ if len(names) == 1:
                yield names[0], row, row
            case ast.Tuple(elts=values) | ast.List(elts=values) if len(values) == len(names):
                for name, value in zip(names, values, strict=True):
                    yield name, value, row
            case _:
                for name in names:
                    yield name, row, row


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
