"""Read literals of languages other than Python. Pure: files come from datasets."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final

from tree_sitter import Node

_STRINGS: Final = frozenset(
    {"string", "string_literal", "interpreted_string_literal", "template_string"}
)
_NUMBERS: Final = re.compile(
    r"number|int(?:eger)?_literal|float_literal|decimal_(integer|floating_point)_literal"
)
_SUFFIX: Final = re.compile(r"[LlDdFf]|_?[ui](?:8|16|32|64|128|size)|_?f(?:32|64)")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a check: where it stands, and its plain value if it is a literal."""

    start: int
    end: int
    value: object
    like: str = ""
    """A literal of the same type and shape that does not show the value, where types need one."""


@dataclass(frozen=True, slots=True)
class Literals:
    """Reads the literals of a file."""

    DEEPEST: ClassVar[int] = 8
    data: bytes

    def value(self, node: Node, depth: int = 0) -> object:
        """Return the plain value of a literal, or None."""
        if _NUMBERS.fullmatch(node.type) or node.type == "unary_expression":
            return _number(self.text(node))
        if node.type in _STRINGS:
            return self._text_of(node)
        match node.type:
            case "raw_string_literal" if len(node.named_children) == 1:
                return self.text(node.named_children[0])
            case "true" | "false" | "boolean_literal":
                return self.text(node) == "true"
            case "array" | "object":
                return self._container(node, depth)
            case _:
                return None

    def _container(self, node: Node, depth: int) -> object:
        children = [self.value(each, depth + 1) for each in _elements(node, depth)]
        if None in children:
            return None
        if node.type == "array":
            return children
        if not node.named_children or {each.type for each in node.named_children} != {"pair"}:
            return None
        keys = [self._key(each) for each in node.named_children]
        return None if None in keys else dict(zip(keys, children, strict=True))

    def _key(self, pair: Node) -> str | None:
        key = pair.child_by_field_name("key")
        if key is None or key.type == "property_identifier":
            return self.text(key)
        value = self.value(key)
        return value if isinstance(value, str) else None

    def _text_of(self, node: Node) -> str | None:
        parts = []
        for child in node.children[1:-1]:
            text = self.text(child)
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

    def text(self, node: Node | None) -> str:
        """Return the text of a node."""
        if node is None:
            return ""
        return self.data[node.start_byte : node.end_byte].decode(errors="replace")


def _elements(node: Node, depth: int) -> list[Node]:
    """Return the values in an array or object; one that is too deep has unreadable ones."""
    if depth > Literals.DEEPEST:
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
    digits = re.sub(f"(?:{_SUFFIX.pattern})$", "", text).replace("_", "")
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
