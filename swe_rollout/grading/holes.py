"""Find what can be taken out of a test: the expected values of its checks. Pure.

A value can be taken out if nothing but a required check reads it, whatever the code under test
returns: then a test that passes with it passes without it, too. Test files come from datasets and
are only parsed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from swe_rollout.grading.edits import HOLE, Edit, Source, TestFunction
from swe_rollout.grading.expected import (
    bindings,
    is_closed,
    literal,
    plain,
    pure_functions,
    reads_file,
    statements,
    uses,
)
from swe_rollout.grading.required import Check, checks
from swe_rollout.grading.wants import Close, Computed, Contains, Equal, Filed, Want

_MOST: Final = 500
"""The most values that are taken out of one test."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A check of a test file, whose expected value can be taken out."""

    want: Want
    spans: tuple[tuple[int, int, int], ...]
    """The bytes `[start, end)` to replace and the line ends in them: one, or two around a value."""
    call: str = ""
    """How the call that takes what stands between two spans begins, with `{}` for its number."""
    named: tuple[int, int, int] | None = None
    """The expected value's own place, if the check has a name for it."""
    stand_in: str = "None"
    """What stands in that place instead."""
    is_new: bool = True
    """Whether the base lacks the statement or the row around it, so no agent could read it."""

    def edits(self, number: int) -> Iterator[Edit]:
        """Yield the edits that take the value out; the file keeps its lines."""
        match self.spans:
            case [(start, end, lines)]:
                yield Edit(start, end, f"{HOLE}({number}{_ends(lines)})")
            case [(start, end, lines), (last, behind, more)]:
                yield Edit(start, end, f"{self.call.format(number)}, ({_ends(lines)}")
                yield Edit(last, behind, f"{_ends(more)}))")
            case _:
                pass
        if self.named is not None:
            start, end, lines = self.named
            yield Edit(start, end, f"({self.stand_in}{_ends(lines)})")


def _ends(lines: int) -> str:
    return "\n" * lines


def find_holes(source: Source, function: TestFunction, base: str) -> tuple[Hole, ...]:
    """Return the values that can be taken out of a test; `base` is the file's text in the base."""
    finder = _Finder(source, function, base.encode(errors="replace"))
    found: dict[tuple[int, int, int], Hole] = {}
    for hole in finder.holes():
        found.setdefault(hole.spans[0], hole)
        if len(found) == _MOST:
            break
    return tuple(found[place] for place in sorted(found))


class _Finder:
    """Finds the checks of a test, and the names that nothing else reads."""

    def __init__(self, source: Source, function: TestFunction, base: bytes) -> None:
        self._source, self._function, self._base = source, function, base
        self._offsets, self._data = source.offsets(), source.text.encode()
        self._checks = [
            (check, statement)
            for statement in statements(function.body)
            for check in checks(statement)
        ]
        read = {
            id(leaf)
            for check, _ in self._checks
            for side in check.sides
            for leaf in _leaves(side)
            if isinstance(leaf, ast.Name)
        }
        all_uses = uses(function)
        self._compared = {name for name, nodes in all_uses.items() if nodes and nodes <= read}
        self._bound: dict[str, list[tuple[ast.expr, ast.expr | ast.stmt]]] = {}
        for name, value, around in bindings(function):
            if name in all_uses:
                self._bound.setdefault(name, []).append((value, around))
        self._once = {name for name, nodes in all_uses.items() if len(nodes) == 1}
        # Lists could be changed by the code under test; texts and numbers can't.
        constants = {
            name
            for name, values in self._bound.items()
            if values and all(literal(value) is not None for value, _ in values)
        }
        self._closed = pure_functions(source.bound) | constants
        self._known = {
            name
            for name, values in self._bound.items()
            if any(self._is_known(value) for value, _ in values)
        }

    def holes(self) -> Iterator[Hole]:
        for check, statement in self._checks:
            yield from self._read(check)
            for side in check.sides:
                yield from self._in_place(side, statement)
            if check.inner is not None:
                yield from self._around(check, statement)
        for name in sorted(self._compared):
            for value, around in self._bound.get(name, ()):
                yield from self._in_place(value, around)

    def _in_place(self, side: ast.expr, around: ast.expr | ast.stmt) -> Iterator[Hole]:
        for leaf in _leaves(side):
            value = literal(leaf)
            want: Want
            if value is not None:
                want = Equal(value)
            elif (close := _approximation(leaf)) is not None:
                want = close
            elif isinstance(leaf, ast.Name) and leaf.id in self._compared:
                continue
            elif not isinstance(leaf, ast.Constant) and is_closed(leaf, self._closed):
                want = Computed()
            else:
                continue
            yield Hole(want, (self._span(leaf),), is_new=self._is_new(around))

    def _read(self, check: Check) -> Iterator[Hole]:
        """Yield the hole of a check that compares with a file's text, and with nothing known."""
        files = list[ast.expr]()
        for side in check.sides:
            match side:
                case ast.Name(id=name) if name in self._known:
                    return
                case ast.Name(id=name):
                    is_read = name in self._compared and name in self._once
                    values = self._values(name) if is_read else []
                case _ if self._is_known(side):
                    return
                case _:
                    values = [side]
            files += [value for value in values if reads_file(value)]
        if len(files) == 1:
            yield Hole(Filed(), (self._span(files[0]),))

    def _is_known(self, value: ast.expr) -> bool:
        return any(True for _ in self._in_place(value, value))

    def _values(self, name: str) -> list[ast.expr]:
        return [value for value, _ in self._bound.get(name, ())]

    def _around(self, check: Check, statement: ast.stmt) -> Iterator[Hole]:
        """Yield the hole of a check that becomes a call with the value that it looks at."""
        want, named = check.want, None
        if isinstance(check.operand, ast.Name):
            values = self._bound.get(check.operand.id, [])
            if len(values) != 1 or check.operand.id not in self._once:
                return
            want = _resolved(check, values[0][0])
            named = self._span(values[0][0])
        elif check.operand is not None:
            want = _resolved(check, check.operand)
        if want is None or check.inner is None:
            return
        start, end, _ = self._span(check.node)
        first, last, _ = self._span(check.inner)
        spans = (self._place(start, first), self._place(last, end))
        yield Hole(want, spans, check.call, named, is_new=self._is_new(statement))

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int, int]:
        return self._place(*self._source.span(node, self._offsets))

    def _place(self, start: int, end: int) -> tuple[int, int, int]:
        return start, end, self._data.count(b"\n", start, end)

    def _is_new(self, around: ast.expr | ast.stmt) -> bool:
        start, end = self._source.span(around, self._offsets)
        return self._data[start:end] not in self._base


def _resolved(check: Check, operand: ast.expr) -> Want | None:
    """Return what a check asks for if its operand is a plain value."""
    match check.want:
        case Close(_, relative, absolute):
            value = plain(operand)
            return None if value is None else Close(value, relative, absolute)
        case _:
            part = literal(operand)
            return None if part is None else Contains(part)


def _leaves(value: ast.expr) -> Iterator[ast.expr]:
    """Yield the values and names that an expected value consists of."""
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements) if not any(
            isinstance(each, ast.Starred) for each in elements
        ):
            for element in elements:
                yield from _leaves(element)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            for element in values:
                yield from _leaves(element)
        case _:
            yield value


def _approximation(value: ast.expr) -> Close | None:
    """Return what `approx(…)` of pytest accepts, if its arguments are plain."""
    match value:
        case ast.Call(
            func=ast.Attribute(attr="approx") | ast.Name(id="approx"), args=[first], keywords=more
        ):
            wanted = plain(first)
            options = {each.arg: literal(each.value) for each in more}
            relative, absolute = options.pop("rel", 1e-6), options.pop("abs", 1e-12)
            if "rel" not in {each.arg for each in more} and len(more) == 1:
                relative = 0.0
            if wanted is None or options:
                return None
            if isinstance(relative, (int, float)) and isinstance(absolute, (int, float)):
                return Close(wanted, relative, absolute)
        case _:
            pass
    return None
