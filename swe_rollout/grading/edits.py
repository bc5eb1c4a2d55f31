"""Parse test files, and edit tests so that they must fail. Pure.

Test files come from datasets and are only parsed. A file that can't be parsed, or is too large or
too deeply nested, is not edited.
"""

from __future__ import annotations

import ast
import random
import re
import string
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

HOLE: Final = "_swe_rollout_hole"
"""The name of the recorder in a blind test file."""
_LARGEST_CHARS = 1 << 20
_TRIES = 20
_LETTERS = string.ascii_lowercase
_INNER = re.compile(r"(?<![\"'\\])(?<!\\.)(?<!\\..)(?<!\\...)[0-9A-Za-z](?![\"'])", re.ASCII)
"""Matches the letters of a literal outside its escapes, prefix and quotes."""
_UNLIKELY_ERROR = "BufferError"
_OPPOSITES = {
    "assertTrue": "assertFalse",
    "assertFalse": "assertTrue",
    "assertIsNone": "assertIsNotNone",
    "assertIsNotNone": "assertIsNone",
    "assertIn": "assertNotIn",
    "assertNotIn": "assertIn",
}
EQUALITIES: Final = frozenset(
    {
        "assertEqual",
        "assertEquals",
        "assertListEqual",
        "assertDictEqual",
        "assertTupleEqual",
        "assertMultiLineEqual",
        "assertSequenceEqual",
    }
)
"""Methods of unittest that compare two values with `==`, part by part and in order."""
_RAISES = frozenset({"raises", "assertRaises", "assertRaisesMessage", "assertRaisesRegex"})

TestFunction = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes `[start, end)` of a file, and what replaces them."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a test file, and the tests in it."""

    text: str
    functions: tuple[TestFunction, ...]
    bound: frozenset[str] = frozenset()
    """All names that anything in the file binds."""

    @classmethod
    def of(cls, text: str) -> Source:
        """Parse a file; if that fails, it has no tests."""
        if len(text) > _LARGEST_CHARS or "\r" in text:
            return cls(text, ())
        try:
            tree = ast.parse(text)
            return cls(text, tuple(_tests(tree.body)), frozenset(_bound(tree)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return cls(text, ())

    def part(self, function: TestFunction) -> str:
        """Return the text of a function without its decorators."""
        return ast.get_source_segment(self.text, function) or ""

    def edited(self, edits: Collection[Edit]) -> str:
        """Return the text with these edits applied, which must not overlap."""
        data, parts, at = self.text.encode(), list[bytes](), 0
        for edit in sorted(edits, key=lambda each: each.start):
            parts += [data[at : edit.start], edit.text.encode()]
            at = edit.end
        return b"".join([*parts, data[at:]]).decode()

    def span(self, node: ast.expr | ast.stmt, offsets: list[int]) -> tuple[int, int]:
        """Return the bytes `[start, end)` of a node."""
        start = offsets[node.lineno - 1] + node.col_offset
        return start, offsets[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def offsets(self) -> list[int]:
        """Return the byte at which each line begins."""
        found, at = [], 0
        for line in self.text.encode().split(b"\n"):
            found.append(at)
            at += len(line) + 1
        return found


def failing(source: Source, function: TestFunction, token: str) -> Edit:
    """Return the edit that makes the test fail at the end of its body with the message `token`."""
    last = function.body[-1]
    end = source.offsets()[(last.end_lineno or last.lineno) - 1] + (last.end_col_offset or 0)
    statement = f'raise AssertionError("{token}")'
    first = function.body[0]
    if first.lineno == function.lineno:
        return Edit(end, end, f"; {statement}")
    return Edit(end, end, f"\n{' ' * first.col_offset}{statement}")


def changed(source: Source, function: TestFunction, chance: random.Random) -> list[Edit]:
    """Return plausible edits after which none of the test's expectations holds.

    Only conditions that a passing test must meet are changed, so a right result can't pass.
    """
    places = _Places(source, source.offsets(), chance)
    edits = [edit for node in ast.walk(function) for edit in places.of(node)]
    edits.sort(key=lambda each: (each.start, each.end))
    overlap = any(edit.start < before.end for before, edit in pairwise(edits))
    return [] if overlap else edits


def _tests(body: list[ast.stmt]) -> Iterator[TestFunction]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node
            case ast.ClassDef() | ast.If() | ast.With():
                yield from _tests(node.body)
            case ast.Try():
                yield from _tests([*node.body, *node.orelse])
            case _:
                pass


def _bound(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) if names[0].name != "textwrap":
                yield from (each.asname or each.name.partition(".")[0] for each in names)
            case ast.ImportFrom(module=module, names=names) if module != "textwrap":
                yield from (each.asname or each.name for each in names)
            case _:
                pass


@dataclass(frozen=True, slots=True)
class _Places:
    """Locates nodes in a file's bytes, and makes the choices of one run."""

    source: Source
    offsets: list[int]
    chance: random.Random

    def of(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Assert(test=test):
                yield from self._condition(test)
            case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
                yield from self._call(node, name)
            case _:
                pass

    def _condition(self, test: ast.expr) -> Iterator[Edit]:
        match test:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                yield from self._unequal(left, right)
            case ast.Compare(left=ast.Constant(value=str() as text) as left, ops=[ast.In()]):
                # The text to search for must not occur by accident.
                yield from self._letter(left, text, "".join(self.chance.choices(_LETTERS, k=6)))
            case ast.BoolOp(op=ast.And(), values=[first, *_]):
                yield from self._condition(first)
            case _:
                yield from self._wrapped(test, "not (", ")")

    def _call(self, node: ast.Call, name: str) -> Iterator[Edit]:
        if name in EQUALITIES and len(node.args) > 1:
            yield from self._unequal(node.args[0], node.args[1])
        elif name in _RAISES and node.args and isinstance(node.args[0], (ast.Name, ast.Attribute)):
            yield Edit(*self._span(node.args[0]), _UNLIKELY_ERROR)
        elif name in _OPPOSITES:
            _, end = self._span(node.func)
            yield Edit(end - len(name), end, _OPPOSITES[name])

    def _unequal(self, left: ast.expr, right: ast.expr) -> Iterator[Edit]:
        """Change a constant on one side; without one, pair a side with another value."""
        for side in (right, left):
            for constant in _literals(side):
                if edits := list(self._constant(constant)):
                    yield from edits
                    return
        yield from self._wrapped(right, "(", ", None)")

    def _constant(self, node: ast.Constant) -> Iterator[Edit]:
        match node.value:
            case bool() | None:
                yield Edit(*self._span(node), repr(not node.value))
            case int() | float():
                yield Edit(*self._span(node), repr(node.value + self.chance.choice((1, 2))))
            case str() as text:
                yield from self._letter(node, text, "")
            case bytes() as data:
                yield from self._letter(node, data, "")
            case _:
                pass

    def _letter(self, node: ast.Constant, value: str | bytes, more: str) -> Iterator[Edit]:
        """Change one letter of a text in place, or put `more` before it."""
        start, end = self._span(node)
        literal = self.source.text.encode()[start:end].decode()
        places = [place.start() for place in _INNER.finditer(literal)]
        self.chance.shuffle(places)
        for at in places[:_TRIES]:
            pool = string.digits if literal[at].isdigit() else _LETTERS
            new = more + literal[at] if more else self.chance.choice(pool.replace(literal[at], ""))
            if _value(literal[:at] + new + literal[at + 1 :]) not in (value, None):
                place = start + len(literal[:at].encode())
                yield Edit(place, place + 1, new)
                return
        yield from self._wrapped(node, "(", ', "")' if more else ", None)")

    def _wrapped(self, node: ast.expr, before: str, behind: str) -> Iterator[Edit]:
        start, end = self._span(node)
        yield Edit(start, start, before)
        yield Edit(end, end, behind)

    def _span(self, node: ast.expr) -> tuple[int, int]:
        return self.source.span(node, self.offsets)


def _value(literal: str) -> object:
    try:
        return ast.literal_eval(literal)
    except (SyntaxError, ValueError):
        return None


def _literals(value: ast.expr) -> Iterator[ast.Constant]:
    """Yield the constants of a literal, the plainest first; none for other expressions."""
    match value:
        case ast.Constant():
            yield value
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            for element in elements:
                yield from _literals(element)
        case ast.Dict(values=values):
            for element in values:
                yield from _literals(element)
        case _:
            pass
