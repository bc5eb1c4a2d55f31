"""Read the macros of Rust that check something: `assert_eq!`, `assert!`. Pure.

A grammar leaves what is in a macro unread, as tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from tree_sitter import Node

from swe_rollout.grading.languages.literals import Argument, Literals


def macro(call: Node, literals: Literals) -> tuple[str, list[Argument]] | None:
    """Return the name of a macro with its `!`, and its arguments."""
    name, tree = call.child_by_field_name("macro"), call.named_children[-1:]
    if call.type != "macro_invocation" or not tree or tree[0].type != "token_tree":
        return None
    found = [
        Argument(tokens[0].start_byte, tokens[-1].end_byte, _value(tokens, literals))
        for tokens in _parts(tree[0])
    ]
    return f"{literals.text(name)}!", found


def _parts(tree: Node) -> list[list[Node]]:
    """Return the tokens between the commas of a bracket."""
    parts: list[list[Node]] = [[]]
    for token in tree.children[1:-1]:
        if token.type == ",":
            parts.append([])
        elif "comment" not in token.type:
            parts[-1].append(token)
    return [part for part in parts if part]


def _value(tokens: Sequence[Node], literals: Literals, depth: int = 0) -> object:
    """Return the plain value of a literal, or None.

    `Some(1)` and `Ok(1)` are 1, as the recorder has it: their type tells them apart.
    """
    shapes = [literals.text(token) if not token.named_children else "" for token in tokens]
    match shapes, list(tokens):
        case ["&", *_], [_, *rest]:
            return _value(rest, literals, depth)
        case [_], [token] if token.type != "token_tree":
            return literals.value(token)
        case ["-", _], [_, token]:
            number = literals.value(token)
            return -number if isinstance(number, (int, float)) else None
        case [*_, ".", "to_string" | "to_owned" | "to_vec" | "into", "()"], _:
            return _value(tokens[:-3], literals, depth)
        case ["String", "::", "from", ""] | [("Some" | "Ok"), ""] | ["vec", "!", ""] | [""], _:
            return _inner(tokens[-1], literals, depth)
        case _:
            return None


def _inner(tree: Node, literals: Literals, depth: int) -> object:
    parts = _parts(tree)
    if depth > Literals.DEEPEST:
        return None
    values = [_value(part, literals, depth + 1) for part in parts]
    match literals.text(tree)[:1]:
        case "[" if None not in values:
            return values
        case "(" if len(values) == 1:
            return values[0]
        case _:
            return None
