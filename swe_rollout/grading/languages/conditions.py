"""Read the checks of Go that are conditions: `if got != "a" { t.Errorf(…) }`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from swe_rollout.grading.languages.literals import Literals
from swe_rollout.grading.wants import Equal, Truth, Want

_FAILS = frozenset({"Error", "Errorf", "Fatal", "Fatalf", "Fail", "FailNow"})
_SAYS = _FAILS | {"Log", "Logf", "Helper"}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that holds where the test fails."""

    whole: Node
    actual: Node
    want: Want
    literal: Node | None = None
    """The expected value, where it is the value of a name that nothing else reads."""


def condition(statement: Node, literals: Literals, context: str) -> Condition | None:
    """Return what a statement checks, if it does nothing else but fail."""
    body = statement.child_by_field_name("consequence")
    whole = statement.child_by_field_name("condition")
    if (
        statement.type != "if_statement"
        or statement.child_by_field_name("alternative") is not None
        or body is None
        or whole is None
        or not _only_fails(body, literals, context)
    ):
        return None
    return _checked(whole, literals) or _named(statement, whole, literals)


def _only_fails(body: Node, literals: Literals, context: str) -> bool:
    lists = body.named_children
    calls = [_called(each, literals) for block in lists for each in block.named_children]
    names = {name.removeprefix(f"{context}.") for name in calls}
    return bool(names & _FAILS) and names <= _SAYS


def _called(statement: Node, literals: Literals) -> str:
    call = statement.named_children[0] if statement.named_children else statement
    function = call.child_by_field_name("function")
    return literals.text(function) if call.type == "call_expression" else ""


def _sides(whole: Node, literals: Literals) -> tuple[Node, str, Node] | None:
    left, right = whole.child_by_field_name("left"), whole.child_by_field_name("right")
    if whole.type != "binary_expression" or left is None or right is None:
        return None
    return left, literals.text(whole.child_by_field_name("operator")), right


def _checked(whole: Node, literals: Literals) -> Condition | None:
    match _sides(whole, literals):
        case (left, "!=", right) if right.type == "nil":
            return Condition(whole, left, Truth.IS_NONE)
        case (left, "==", right) if right.type == "nil":
            return Condition(whole, left, Truth.NOT_NONE)
        case (left, "!=", right):
            for actual, expected in ((left, right), (right, left)):
                value = literals.value(expected)
                if isinstance(value, str | int | float):
                    return Condition(whole, actual, Equal(value))
            return None
        case _:
            return _answer(whole, literals)


def _answer(whole: Node, literals: Literals) -> Condition | None:
    operand = whole.child_by_field_name("operand")
    match whole.type:
        case "unary_expression" if operand is not None and literals.text(whole)[:1] == "!":
            return Condition(whole, operand, Truth.TRUE)
        case "call_expression" | "identifier":
            return Condition(whole, whole, Truth.FALSE)
        case _:
            return None


def _named(statement: Node, whole: Node, literals: Literals) -> Condition | None:
    """Return what `got != want` checks, if `want := "a"` stands before, for this check alone."""
    block, sides = statement.parent, _sides(whole, literals)
    if block is None or sides is None or sides[1] != "!=":
        return None
    for actual, name in ((sides[0], sides[2]), (sides[2], sides[0])):
        word = literals.text(name)
        given = [each for each in block.named_children if _defines(each, word, literals)]
        used = [each.start_byte for each in _identifiers(block, word, literals)]
        if name.type != "identifier" or len(given) != 1:
            continue
        inside = [at for at in used if statement.start_byte <= at < statement.end_byte]
        expected = given[0].child_by_field_name("right")
        if len(used) != len(inside) + 1 or expected is None:
            continue
        value = literals.value(expected.named_children[0])
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return Condition(whole, actual, Equal(value), expected)
    return None


def _defines(statement: Node, word: str, literals: Literals) -> bool:
    return (
        statement.type == "short_var_declaration"
        and literals.text(statement.child_by_field_name("left")) == word
    )


def _identifiers(block: Node, word: str, literals: Literals) -> Iterator[Node]:
    waiting = [block]
    while waiting:
        node = waiting.pop()
        if node.type == "identifier" and literals.text(node) == word:
            yield node
        waiting.extend(node.named_children)
