"""Read the macros of Rust that check something: `assert_eq!`, `assert!`. Pure.

A grammar leaves what is in a macro unread, as tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tree_sitter import Node

from swe_rollout.grading.languages.literals import Argument, Literals

_DIGITS: Final = re.compile(r"(\d[\d_]*)(\.[\d_]*)?([eE][+-]?\d+)?")


def macro(call: Node, literals: Literals) -> tuple[str, list[Argument]] | None:
    """Return the name of a macro with its `!`, and its arguments."""
    name, tree = call.child_by_field_name("macro"), call.named_children[-1:]
    if call.type != "macro_invocation" or not tree or tree[0].type != "token_tree":
        return None
    found = [
        Argument(
            tokens[0].start_byte,
            tokens[-1].end_byte,
            value := _value(tokens, literals),
            "" if value is None else "".join(_like(token, literals) for token in tokens),
        )
        for tokens in _parts(tree[0])
    ]
    return f"{literals.text(name)}!", found


def _parts(tree: Node) -> list[list[Node]]:
    """Return the tokens between the commas of a bracket, but for those of `::<A, B>`."""
    parts: list[list[Node]] = [[]]
    angles, last = 0, ""
    for token in tree.children[1:-1]:
        text = token.type
        if text == "<" and (angles or last == "::"):
            angles += 1
        elif angles and text in (">", ">>"):
            angles -= len(text)
        if text == "," and not angles:
            parts.append([])
        elif "comment" not in text:
            parts[-1].append(token)
        last = text
    return [part for part in parts if part]


def _like(token: Node, literals: Literals) -> str:
    """Return a token of a literal without what it says."""
    match token.type:
        case "token_tree":
            return "".join(_like(each, literals) for each in token.children)
        case "string_literal" | "raw_string_literal":
            return '""'
        case "boolean_literal":
            return "false"
        case "integer_literal" | "float_literal":
            text = literals.text(token)
            return _DIGITS.sub(lambda found: "0.0" if found[2] or found[3] else "0", text, count=1)
        case kind:
            return "" if "comment" in kind else literals.text(token)


def _value(tokens: Sequence[Node], literals: Literals, depth: int = 0) -> object:
    """Return the plain value of a literal, or None.

    `Some(1)` and `Ok(1)` are 1, as the recorder has it: their type tells them apart.
    """
    tokens = tokens if depth <= Literals.DEEPEST else ()
    shapes = [literals.text(token) if not token.named_children else "" for token in tokens]
    match shapes, list(tokens):
        case ["&", *_], [_, *rest]:
            return _value(rest, literals, depth + 1)
        # Texts of bytes, or for C, are shown otherwise.
        case [_], [token] if token.type != "token_tree" and literals.text(token)[:1] not in "bc":
            return literals.value(token)
        case ["-", _], [_, token]:
            number = literals.value(token)
            return -number if isinstance(number, (int, float)) else None
        case [*_, ".", "to_string" | "to_owned" | "to_vec" | "into", "()"], _:
            return _value(tokens[:-3], literals, depth + 1)
        case ["String", "::", "from", ""] | [("Some" | "Ok"), ""] | ["vec", "!", ""] | [""], _:
            return _inner(tokens[-1], literals, depth)
        case _:
            return None


def _inner(tree: Node, literals: Literals, depth: int) -> object:
    parts = _parts(tree)
    values = [_value(part, literals, depth + 1) for part in parts]
    match literals.text(tree)[:1]:
        case "[" if None not in values:
            return values
        case "(" if len(values) == 1:
            return values[0]
        case _:
            return None
