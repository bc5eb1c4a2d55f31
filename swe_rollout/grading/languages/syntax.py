"""Read test files of other languages than Python. Pure: files come from datasets.

A check counts if it is a statement of its own in the body of a test: every passing run makes it.
A file that can't be parsed, or is too large, has no tests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Final

from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser

from swe_rollout.grading.edits import HOLE, Edit
from swe_rollout.grading.holes import Hole
from swe_rollout.grading.languages.conditions import Condition, Names, condition, names_in
from swe_rollout.grading.languages.literals import Argument, Literals
from swe_rollout.grading.languages.macros import macro
from swe_rollout.grading.languages.table import Kind, Language, Rule
from swe_rollout.grading.wants import Computed, Contains, Equal, Loose, Truth, Want

_LARGEST_BYTES: Final = 1 << 20
_LONGEST_PARSE_S: Final = 60
"""Most files of the largest size take less than a second."""
_CHUNK: Final = 1 << 16
_MOST_HOLES: Final = 500
_LONGEST_NAME: Final = 200
"""The most bytes of a name; what is longer is a whole chain of calls."""
_LONGEST_CHAIN: Final = 20
_TESTS: Final = frozenset({"test", "it", "specify"})


@dataclass(frozen=True, slots=True)
class ForeignTest:
    """A test, by the name that reports show."""

    title: str
    holes: tuple[Hole, ...]
    start: int
    """The byte at which its body starts."""

    def failing(self, language: Language, token: str) -> Edit:
        """Return the edit that makes the test fail."""
        return Edit(self.start, self.start, language.fails.format(message=token))


def read_tests(text: str, base: str, language: Language) -> tuple[ForeignTest, ...]:
    """Return the tests of a file; `base` is its text in the base."""
    data = text.encode()
    if len(data) > _LARGEST_BYTES:
        return ()
    root = _parsed(data, language)
    if root is None or root.has_error:
        return ()
    reader = _Reader(data, base.encode(errors="replace"), language, Literals(data))
    return tuple(reader.test(*found) for node in _walk(root) for found in reader.tests(node))


def _parsed(data: bytes, language: Language) -> Node | None:
    """Parse a file; return None where that takes too long, as what is ambiguous may."""
    ends = time.monotonic() + _LONGEST_PARSE_S
    try:
        tree = Parser(_grammar(*language.grammar)).parse(
            lambda at, _: data[at : at + _CHUNK],
            progress_callback=lambda _at, _has_error: time.monotonic() > ends,
        )
    except ValueError:
        return None
    return tree.root_node


@cache
def _grammar(package: str, function: str) -> Grammar:
    # Grammars are shared objects of megabytes, which most processes do without.
    grammar: int = getattr(import_module(package), function)()
    return Grammar(grammar)


def _walk(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.named_children))


@dataclass(frozen=True, slots=True)
class _Reader:
    data: bytes
    base: bytes
    language: Language
    literals: Literals

    def tests(self, node: Node) -> Iterator[tuple[str, Node]]:
        """Yield the title and the body of a node that is a test."""
        body = node.child_by_field_name("body")
        match node.type:
            case "call_expression" if self._name(node) in _TESTS:
                arguments = _arguments(node)
                title = self.literals.value(arguments[0]) if arguments else None
                block = arguments[-1].child_by_field_name("body") if arguments else None
                if isinstance(title, str) and block is not None and block.type == "statement_block":
                    yield title, block
            case "function_declaration" if self.language.context and body is not None:
                yield self._name(node), body
            case "method_declaration" | "function_item" if body is not None:
                yield self._name(node), body
            case _:
                pass

    def test(self, title: str, body: Node) -> ForeignTest:
        blocks = [each for each in body.named_children if each.type == "statement_list"]
        statements = [each for block in blocks or [body] for each in block.named_children]
        names = names_in(body, self.literals) if self.language.context else {}
        holes = (hole for each in statements if (hole := self._hole(each, names)) is not None)
        return ForeignTest(title, tuple(islice(holes, _MOST_HOLES)), body.start_byte + 1)

    def _hole(self, statement: Node, names: Names) -> Hole | None:
        is_new = self._is_new(statement)
        if self.language.context and (
            found := condition(statement, self.literals, self.language.context, names)
        ):
            hole = self._of_condition(found)
            is_new = is_new or (found.literal is not None and self._is_new(found.literal.parent))
            return replace(hole, is_new=is_new)
        whole = statement
        if statement.type == "expression_statement" and statement.named_children:
            whole = statement.named_children[0]
        if whole.type == "macro_invocation":
            chain = macro(whole, self.literals)
        elif whole is not statement:
            chain = self._called(whole)
        else:
            return None
        name, arguments = chain or ("", [])
        rule = self.language.rules.get(name)
        if rule is None or not rule.arguments[0] <= len(arguments) <= rule.arguments[1]:
            return None
        want, actual, expected = _want(rule, arguments)
        if want is None:
            return None
        hole = self._made(want, whole, actual)
        if expected.like:
            # What the code under test returns may be generic: then its type is that of the value.
            word = "like" if actual.start < expected.start else "liked"
            call = self.language.call.format(hole=HOLE, method=f"{word} {expected.like};") + "{}"
            hole = replace(hole, call=call)
        return replace(hole, is_new=is_new)

    def _of_condition(self, found: Condition) -> Hole:
        actual = Argument(found.actual.start_byte, found.actual.end_byte, None)
        hole = self._made(found.want, found.whole, actual, before="!")
        if found.literal is None:
            return hole
        is_text = isinstance(self.literals.value(found.literal.named_children[0]), str)
        place = self._span(found.literal.start_byte, found.literal.end_byte)
        return replace(hole, named=place, stand_in='""' if is_text else "0")

    def _is_new(self, node: Node | None) -> bool:
        return node is not None and self.data[node.start_byte : node.end_byte] not in self.base

    def _made(self, want: Want, whole: Node, actual: Argument, *, before: str = "") -> Hole:
        method = "truth" if isinstance(want, Truth) else "seen"
        return Hole(
            want,
            (
                self._span(whole.start_byte, actual.start),
                self._span(actual.end, whole.end_byte),
            ),
            before + self.language.call.format(hole=HOLE, method=method) + "{}",
        )

    def _called(self, call: Node) -> tuple[str, list[Argument]] | None:
        if call.type == "await_expression" and call.named_children:
            call = call.named_children[0]
        if (chain := self._chain(call)) is None:
            return None
        name, nodes = chain
        context = self.language.context
        if nodes and context and self.literals.text(nodes[0]) == context:
            nodes = nodes[1:]
        value = self.literals.value
        return name, [Argument(each.start_byte, each.end_byte, value(each)) for each in nodes]

    def _chain(self, call: Node) -> tuple[str, list[Node]] | None:
        """Return the names of a chain of calls, and all arguments in order."""
        names: list[str] = []
        arguments: list[Node] = []
        node: Node | None = call
        while node is not None and len(names) < _LONGEST_CHAIN:
            match node.type:
                case "call_expression":
                    arguments[:0] = _arguments(node)
                    node = node.child_by_field_name("function")
                case "method_invocation":
                    arguments[:0] = _arguments(node)
                    names.insert(0, self._name(node))
                    node = node.child_by_field_name("object")
                case "member_expression" | "selector_expression":
                    last = node.child_by_field_name("property") or node.child_by_field_name("field")
                    names.insert(0, self.literals.text(last))
                    node = node.child_by_field_name("object") or node.child_by_field_name("operand")
                case "identifier":
                    return ".".join([self.literals.text(node), *names]), arguments
                case _:
                    return None
        return ".".join(names), arguments

    def _name(self, node: Node) -> str:
        found = node.child_by_field_name("name") or node.child_by_field_name("function")
        is_name = found is not None and found.end_byte - found.start_byte <= _LONGEST_NAME
        return self.literals.text(found) if is_name else ""

    def _span(self, start: int, end: int) -> tuple[int, int, int]:
        return start, end, self.data.count(b"\n", start, end)


def _want(rule: Rule, arguments: list[Argument]) -> tuple[Want | None, Argument, Argument]:
    """Return what a check asks for, its argument that is looked at, and the expected one."""
    actual = arguments[rule.actual]
    if isinstance(rule.asks, Truth):
        return rule.asks, actual, Argument(0, 0, None)
    expected = arguments[rule.expected]
    if expected.value is None and rule.either:
        actual, expected = expected, actual
    return _wanted(expected.value, rule.asks), actual, expected


def _wanted(value: object, asks: Kind) -> Want | None:
    match value, asks:
        case bool(), Kind.EQUAL:
            return Truth.IS_TRUE if value else Truth.IS_FALSE
        case ((str() | int() | float()), Kind.EQUAL):
            return Equal(value)
        case ((str() | int() | float()), Kind.LOOSE):
            return Loose(value)
        case ((list() | dict()), Kind.EQUAL):
            return Computed((value,))
        case ((str() | int() | float()), Kind.CONTAINS):
            return Contains(value)
        case _:
            return None


def _arguments(call: Node) -> list[Node]:
    found = call.child_by_field_name("arguments")
    if found is None:
        return []
    return [each for each in found.named_children if each.type != "comment"]
