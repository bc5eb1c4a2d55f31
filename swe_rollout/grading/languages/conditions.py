"""Read the checks of Go that are conditions: `if got != "a" { t.Errorf(…) }`. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
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


Names = Mapping[str, Sequence[Node]]


def condition(statement: Node, literals: Literals, context: str, names: Names) -> Condition | None:
    """Return what a statement checks, if it does nothing else but fail.

    `names` are all identifiers of its block.
    """
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
    return _checked(whole, literals) or _named(statement, whole, literals, names)


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
                if isinstance(value, bool):
                    return Condition(whole, actual, Truth.IS_TRUE if value else Truth.IS_FALSE)
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


def _named(statement: Node, whole: Node, literals: Literals, names: Names) -> Condition | None:
    """Return what `got != want` checks, if `want := "a"` stands before, for this check alone."""
    sides = _sides(whole, literals)
    if sides is None or sides[1] != "!=":
        return None
    for actual, name in ((sides[0], sides[2]), (sides[2], sides[0])):
        given, *used = names.get(literals.text(name), (name,))
        # A name that nothing reads behind the condition is an error where the condition is gone.
        if not all(_is_within(each, statement) for each in used) or not any(
            each.start_byte >= whole.end_byte for each in used
        ):
            continue
        if (expected := _value_of(given, statement.parent)) is None:
            continue
        value = literals.value(expected.named_children[0])
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return Condition(whole, actual, Equal(value), expected)
    return None


def _is_within(node: Node, around: Node) -> bool:
    return around.start_byte <= node.start_byte < around.end_byte


def _value_of(name: Node, block: Node | None) -> Node | None:
    """Return what a statement of this block defines a name as, and nothing else."""
    names = name.parent
    given = names.parent if names is not None else None
    if given is None or given.type != "short_var_declaration" or given.parent != block:
        return None
    left = given.child_by_field_name("left")
    return given.child_by_field_name("right") if [name] == (left or name).named_children else None


def names_in(block: Node, literals: Literals) -> Names:
    """Return all identifiers of a block by their words, in the order in which they stand."""
    found: dict[str, list[Node]] = defaultdict(list)
    waiting = [block]
    while waiting:
        node = waiting.pop()
        if node.type == "identifier":
            found[literals.text(node)].append(node)
        waiting.extend(reversed(node.named_children))
    return found
