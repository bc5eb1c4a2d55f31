"""Read test files of other languages than Python. Pure: files come from datasets.

A check counts if it is a statement of its own in the body of a test: every passing run makes it.
A file that can't be parsed, or is too large, has no tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser

from swe_rollout.grading.edits import HOLE, Edit
from swe_rollout.grading.holes import Hole
from swe_rollout.grading.languages.table import Kind, Language, Rule
from swe_rollout.grading.wants import Computed, Contains, Equal, Truth, Want

_LARGEST_BYTES: Final = 1 << 20
_MOST_HOLES: Final = 500
_DEEPEST: Final = 8
_LONGEST_NAME: Final = 200
"""The most bytes of a name; what is longer is a whole chain of calls."""
_LONGEST_CHAIN: Final = 20
_TESTS: Final = frozenset({"test", "it", "specify"})
_STRINGS: Final = frozenset(
    {"string", "string_literal", "interpreted_string_literal", "template_string"}
)
_NUMBERS: Final = re.compile(
    r"number|int_literal|float_literal|decimal_(integer|floating_point)_literal"
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}


@dataclass(frozen=True, slots=True)
class ForeignTest:
    """A test, by the name that reports show."""

    title: str
    holes: tuple[Hole, ...]
    end: int
    """The byte at which its body ends."""

    def failing(self, language: Language, token: str) -> Edit:
        """Return the edit that makes the test fail."""
        return Edit(self.end, self.end, language.fails.format(message=token))


def read_tests(text: str, base: str, language: Language) -> tuple[ForeignTest, ...]:
    """Return the tests of a file; `base` is its text in the base."""
    data = text.encode()
    if len(data) > _LARGEST_BYTES:
        return ()
    root = _parser(*language.grammar).parse(data).root_node
    if root.has_error:
        return ()
    reader = _Reader(data, base.encode(errors="replace"), language)
    return tuple(reader.test(*found) for node in _walk(root) for found in reader.tests(node))


@cache
def _parser(package: str, function: str) -> Parser:
    # Grammars are shared objects of megabytes, which most processes do without.
    grammar: int = getattr(import_module(package), function)()
    return Parser(Grammar(grammar))


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

    def tests(self, node: Node) -> Iterator[tuple[str, Node]]:
        """Yield the title and the body of a node that is a test."""
        body = node.child_by_field_name("body")
        match node.type:
            case "call_expression" if self._name(node) in _TESTS:
                arguments = _arguments(node)
                title = self._literal(arguments[0]) if arguments else None
                block = arguments[-1].child_by_field_name("body") if arguments else None
                if isinstance(title, str) and block is not None and block.type == "statement_block":
                    yield title, block
            case "function_declaration" if self.language.context and body is not None:
                yield self._name(node), body
            case "method_declaration" if body is not None:
                yield self._name(node), body
            case _:
                pass

    def test(self, title: str, body: Node) -> ForeignTest:
        blocks = [each for each in body.named_children if each.type == "statement_list"]
        statements = [each for block in blocks or [body] for each in block.named_children]
        holes = [hole for each in statements if (hole := self._hole(each)) is not None]
        return ForeignTest(title, tuple(holes[:_MOST_HOLES]), body.end_byte - 1)

    def _hole(self, statement: Node) -> Hole | None:
        if statement.type != "expression_statement" or not statement.named_children:
            return None
        whole = call = statement.named_children[0]
        if call.type == "await_expression" and call.named_children:
            call = call.named_children[0]
        if (chain := self._chain(call)) is None:
            return None
        name, arguments = chain
        if (
            arguments
            and self.language.context
            and self._text(arguments[0]) == self.language.context
        ):
            arguments = arguments[1:]
        rule = self.language.rules.get(name)
        if rule is None or not rule.arguments[0] <= len(arguments) <= rule.arguments[1]:
            return None
        want, actual = self._want(rule, arguments)
        if want is None:
            return None
        method = "truth" if isinstance(want, Truth) else "seen"
        return Hole(
            want,
            (
                self._span(whole.start_byte, actual.start_byte),
                self._span(actual.end_byte, whole.end_byte),
            ),
            f"{HOLE}.{method}({{}}",
            is_new=self.data[statement.start_byte : statement.end_byte] not in self.base,
        )

    def _want(self, rule: Rule, arguments: list[Node]) -> tuple[Want | None, Node]:
        actual = arguments[rule.actual]
        if isinstance(rule.asks, Truth):
            return rule.asks, actual
        value = self._literal(arguments[rule.expected])
        if value is None and rule.either:
            value, actual = self._literal(actual), arguments[rule.expected]
        return _wanted(value, rule.asks), actual

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
                    names.insert(0, self._text(last))
                    node = node.child_by_field_name("object") or node.child_by_field_name("operand")
                case "identifier":
                    return ".".join([self._text(node), *names]), arguments
                case _:
                    return None
        return ".".join(names), arguments

    def _literal(self, node: Node, depth: int = 0) -> object:
        """Return the plain value of a literal, or None."""
        children = [self._literal(each, depth + 1) for each in _elements(node, depth)]
        if _NUMBERS.fullmatch(node.type) or node.type == "unary_expression":
            return _number(self._text(node))
        match node.type:
            case kind if kind in _STRINGS:
                return self._string(node)
            case "true" | "false":
                return node.type == "true"
            case "array":
                return None if None in children else children
            case "object" if node.named_children and all(
                each.type == "pair" for each in node.named_children
            ):
                keys = [self._key(each) for each in node.named_children]
                return (
                    None
                    if None in children or None in keys
                    else dict(zip(keys, children, strict=True))
                )
            case _:
                return None

    def _key(self, pair: Node) -> str | None:
        key = pair.child_by_field_name("key")
        if key is None or key.type == "property_identifier":
            return self._text(key)
        value = self._literal(key)
        return value if isinstance(value, str) else None

    def _string(self, node: Node) -> str | None:
        parts = []
        for child in node.children[1:-1]:
            text = self._text(child)
            match child.type:
                case "escape_sequence":
                    if (character := _unescaped(text)) is None:
                        return None
                    parts.append(character)
                case "template_substitution":
                    return None
                case _:
                    parts.append(text)
        return "".join(parts)

    def _name(self, node: Node) -> str:
        found = node.child_by_field_name("name") or node.child_by_field_name("function")
        is_name = found is not None and found.end_byte - found.start_byte <= _LONGEST_NAME
        return self._text(found) if is_name else ""

    def _text(self, node: Node | None) -> str:
        if node is None:
            return ""
        return self.data[node.start_byte : node.end_byte].decode(errors="replace")

    def _span(self, start: int, end: int) -> tuple[int, int, int]:
        return start, end, self.data.count(b"\n", start, end)


def _wanted(value: object, asks: Kind) -> Want | None:
    match value, asks:
        case bool(), Kind.EQUAL:
            return Truth.IS_TRUE if value else Truth.IS_FALSE
        case ((str() | int() | float()), Kind.EQUAL):
            return Equal(value)
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


def _elements(node: Node, depth: int) -> list[Node]:
    """Return the values in an array or object; one that is too deep has unreadable ones."""
    if depth > _DEEPEST:
        return []
    match node.type:
        case "array":
            return node.named_children
        case "object":
            values = [each.child_by_field_name("value") for each in node.named_children]
            return [each for each in values if each is not None]
        case _:
            return []


def _number(text: str) -> int | float | None:
    digits = text.replace("_", "").rstrip("LlDdFf")
    if not re.fullmatch(r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", digits):
        return None
    try:
        value: object = ast.literal_eval(digits)
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, (int, float)) else None


def _unescaped(sequence: str) -> str | None:
    body = sequence[1:]
    if code := re.fullmatch(r"u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|u\{([0-9a-fA-F]{1,6})\}", body):
        number = int(code[1] or code[2] or code[3], 16)
        with suppress(ValueError):  # too large, or half of a pair
            return chr(number).encode().decode()
        return None
    if body in _ESCAPES:
        return _ESCAPES[body]
    return body if re.fullmatch(r"[\\'\"`/]", body) else None
