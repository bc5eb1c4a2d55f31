"""Rows L1 and WE16: arithmetic without eval, bounded, and integers stay integers."""

from __future__ import annotations

import operator
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.agent.tools import load_tool
from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.agent.tools.calculator import MAX_BITS, evaluate
from swe_rollout.spec.agent import ToolUse
from swe_rollout.testing.extensions.tools import MemorySandbox

CALCULATOR = load_tool("calculator")


async def see(**arguments: object) -> str:
    assert CALCULATOR.spec.problems(arguments) == []
    return (await CALCULATOR.run(arguments, MemorySandbox({}), ToolContext(5, 1024))).text


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2**100 + 1", "1267650600228229401496703205377"),
        ("7 // 2 * -3 % 5", "1"),
        ("1/3", "0.333333333333333"),
        ("6 × 7 ÷ 2 − 1", "20"),
        ("3² + 2³", "17"),
        ("π", "3.14159265358979"),
        ("factorial(25)", "15511210043330985984000000"),
        ("round(2.567, 1) + abs(-2)", "4.6"),
        ("max(1, 2, 3) + min([4, 5])", "7"),
        ("mean([1, 2, 3]) + sum(1, 2)", "5"),
        ("sqrt(16) + log10(1000) + ceil(0.5)", "8"),
        ("9007199254740993 * 1", "9007199254740993"),
        ("+1 - -1", "2"),
    ],
)
async def test_expressions(expression: str, value: str) -> None:
    assert await see(expression=expression) == value


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ({"operation": "add", "a": 2**60, "b": 1}, "1152921504606846977"),
        ({"operation": "subtract", "a": 1, "b": 2}, "-1"),
        ({"operation": "divide", "a": 1, "b": 4}, "0.25"),
        ({"operation": "power", "a": 2, "b": -1}, "0.5"),
        ({"operation": "modulo", "a": 7, "b": 4}, "3"),
        ({"operation": "mean", "numbers": [1, 2, 6]}, "3"),
        ({"operation": "std", "numbers": [1.0, 3.0]}, "1"),
        ({"operation": "product", "numbers": [2**40, 2**40]}, str(2**80)),
        ({"operation": "sum", "numbers": [1, 2.5]}, "3.5"),
        ({"operation": "factorial", "n": 5}, "120"),
        ({"operation": "sqrt", "n": 9}, "3"),
        ({"operation": "max", "a": 1, "b": 2}, "2"),
    ],
)
async def test_operations(arguments: dict[str, object], value: str) -> None:
    """Row WE16: `operation=add`, and `numbers` with mean, work."""
    assert await see(**arguments) == value


@pytest.mark.threat(point=10)
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"expression": "9**9**9"}, f"over {MAX_BITS} bits"),
        ({"expression": "10**4000"}, f"over {MAX_BITS} bits"),
        ({"expression": "factorial(10**9)"}, "up to 600"),
        ({"expression": "factorial(2.5)"}, "of an integer"),
        ({"expression": "factorial(-1)"}, "error: "),
        ({"expression": "2**4000 * 2**4000"}, f"over {MAX_BITS} bits"),
        ({"expression": "1e308 * 10"}, "too large"),
        ({"expression": "1e999"}, "too large"),
        ({"expression": "(-8) ** 0.5"}, "no real number"),
        ({"expression": "1/0"}, "division by zero"),
        ({"expression": "sqrt(-1)"}, "math domain error"),
        ({"expression": "0.0 ** -1"}, "error: "),
        ({"expression": "exp(1000)"}, "error: "),
        ({"expression": "__import__('os').system('id')"}, "error: "),
        ({"expression": "().__class__"}, "no Attribute"),
        ({"expression": "[x for x in (1, 2)]"}, "no ListComp"),
        ({"expression": "sum([1] * 10)"}, "a list is given"),
        ({"expression": "open('/etc/passwd')"}, "there is no function open"),
        ({"expression": "True + 1"}, "no numbers"),
        ({"expression": "'a' * 3"}, "no Constant"),
        ({"expression": "2 ^ 3"}, "written **"),
        ({"expression": "x"}, "there is no x"),
        ({"expression": "("}, "can't be read"),
        ({"expression": ""}, "can't be read"),
        ({"expression": "1\0"}, "error: "),
        ({"expression": "-" * 399 + "1"}, ""),
        ({"expression": "(" * 199 + "1" + ")" * 199}, ""),
        ({"expression": "1" * 500}, "over 400 characters"),
        ({"expression": "max()"}, "error: "),
        ({"expression": "sqrt(1, 2)"}, "error: "),
        ({"expression": "round(1.5, 10**300)"}, ""),
        ({"expression": "round(10**300, -10**300)"}, ""),
        ({"expression": "1", "operation": "add"}, "either"),
        ({}, "either"),
        ({"operation": "add", "a": 1}, "needs a and b"),
        ({"operation": "mean"}, "needs a and b, n, or numbers"),
        ({"operation": "std", "numbers": []}, "needs a and b, n, or numbers"),
        ({"operation": "product", "numbers": [2**62] * 100}, f"over {MAX_BITS} bits"),
    ],
)
async def test_what_can_not_be_worked_out_is_told_at_once(
    arguments: dict[str, object], why: str
) -> None:
    assert why in await see(**arguments)


async def test_precision_is_the_job_s() -> None:
    tool = load_tool(ToolUse(use="calculator", with_={"precision": 3}))
    seen = await tool.run({"expression": "2/3"}, MemorySandbox({}), ToolContext(5, 1024))
    assert seen.text == "0.667"


@given(st.lists(st.tuples(st.sampled_from("+-*"), st.integers(-(10**20), 10**20)), max_size=6))
def test_integers_are_exact(terms: list[tuple[str, int]]) -> None:
    operators = {"+": operator.add, "-": operator.sub, "*": operator.mul}
    written = "1" + "".join(f" {sign} ({value})" for sign, value in terms)

    # From left to right, as brackets say.
    bracketed = reduce(lambda left, term: f"({left} {term[0]} ({term[1]}))", terms, "1")
    expected = reduce(lambda left, term: operators[term[0]](left, term[1]), terms, 1)
    assert evaluate(bracketed) == expected
    assert isinstance(evaluate(written), int)


@given(st.text(alphabet="0123456789+-*/%().,e[] \tsqrtmaxfoil", max_size=60))
async def test_any_text_is_answered(expression: str) -> None:
    assert await see(expression=expression)
