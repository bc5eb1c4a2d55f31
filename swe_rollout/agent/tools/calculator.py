"""The `calculator` tool: arithmetic on an expression's syntax tree, without `eval`.

Integers stay integers, of any size up to `MAX_BITS`; no expression takes long.
"""

from __future__ import annotations

import ast
import math
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final

from pydantic import Field, validate_call

from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError
from swe_rollout.agent.tools.face import Call, Face

Number = int | float
MAX_BITS: Final = 4096
_MAX_EXPRESSION: Final = 400
_MAX_FACTORIAL: Final = 600
_SIGNS: Final = str.maketrans(
    {"×": "*", "÷": "/", "·": "*", "−": "-", "²": "**2", "³": "**3", "π": "pi"}
)


@validate_call
def calculator(
    *,
    precision: Annotated[
        int,
        Field(ge=1, le=17, description="Significant digits of a result that is no integer."),
    ] = 15,
) -> Face:
    """Offer `calculator`: an expression, or one operation on numbers."""

    async def act(call: Call) -> str:
        try:
            value = _result(call)
        except (ArithmeticError, ValueError, TypeError, statistics.StatisticsError) as error:
            raise ToolError(str(error)) from error
        return str(value) if isinstance(value, int) else f"{value:.{precision}g}"

    return Face.of(
        act,
        "calculator",
        "Calculate. Give an expression with + - * / // % ** and "
        f"{', '.join(_FUNCTIONS)}, pi, e; or an operation with a and b, with n, or with "
        "numbers.",
        Parameter("expression", "Such as 2**10 + sqrt(2) or mean([1, 2, 4])."),
        Parameter(
            "operation", "What to do with a and b, n, or numbers.", choices=(*_BINARY, *_FUNCTIONS)
        ),
        Parameter(
            "numbers", "The numbers of sum, mean, min, max, product or std.", ParameterType.NUMBERS
        ),
        Parameter("a", "The first number.", ParameterType.NUMBER),
        Parameter("b", "The second number.", ParameterType.NUMBER),
        Parameter("n", "The only number, as of factorial or sqrt.", ParameterType.NUMBER),
    )


def evaluate(expression: str) -> Number:
    """Evaluate an expression. Raises ToolError, ArithmeticError, ValueError or TypeError."""
    if len(expression) > _MAX_EXPRESSION:
        raise ToolError(f"the expression has over {_MAX_EXPRESSION} characters")
    try:
        tree = ast.parse(expression.strip().translate(_SIGNS), mode="eval")
        value = _value(tree.body)
    except SyntaxError as error:
        raise ToolError(f"the expression can't be read: {error.msg}") from error
    except (RecursionError, MemoryError) as error:
        raise ToolError("the expression is nested too deeply") from error
    return _number(value)


def _result(call: Call) -> Number:
    expression, operation = call.text("expression"), call.text("operation")
    if (expression is None) == (operation is None):
        raise ToolError("give either an expression or an operation")
    if expression is not None:
        return evaluate(expression)
    given = [call.arguments[each] for each in ("a", "b", "n") if each in call.arguments]
    values = [_number(each) for each in (call.items("numbers") or given)]
    if not values:
        raise ToolError(f"the operation {operation} needs a and b, n, or numbers")
    if operation is not None and operation in _BINARY:
        if len(values) != 2:  # noqa: PLR2004 - a and b
            raise ToolError(f"the operation {operation} needs a and b")
        return _bounded(_BINARY[operation](*values))
    return _bounded(_call(operation or "", values))


def _value(node: ast.expr) -> Number | list[Number]:
    match node:
        case ast.Constant(value=bool()):
            raise ToolError("true and false are no numbers")
        case ast.Constant(value=int() | float() as value):
            return _bounded(value)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_number(_value(operand)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _bounded(_OPERATORS[type(op)](_number(_value(left)), _number(_value(right))))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            _require_function(name)
            return _bounded(_call(name, [_value(each) for each in args]))
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_number(_value(each)) for each in items]
        case ast.BinOp(op=ast.BitXor()):
            raise ToolError("a power is written **")
        case ast.Name(id=name):
            raise ToolError(f"there is no {name}")
        case _:
            raise ToolError(f"an expression has no {type(node).__name__}")


def _require_function(name: str) -> None:
    if name not in _FUNCTIONS:
        raise ToolError(f"there is no function {name}; there are {', '.join(_FUNCTIONS)}")


def _call(name: str, values: Sequence[Number | list[Number]]) -> Number:
    if name in _OF_MANY:
        first = values[0] if values else []
        many = first if len(values) == 1 and isinstance(first, list) else list(values)
        return _OF_MANY[name]([_number(each) for each in many])
    return _OF_FEW[name](*(_number(each) for each in values))


def _number(value: object) -> Number:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ToolError("a list is given where a number is needed")


def _bounded(value: Number) -> Number:
    if isinstance(value, complex):
        raise ToolError("the result is no real number")
    if isinstance(value, float) and not math.isfinite(value):
        raise ToolError("the result is too large, or none")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ToolError(f"the result has over {MAX_BITS} bits")
    return value


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0:
        # The size is known before evaluation: 9**9**9 would take hours.
        if base.bit_length() > 1 and (base.bit_length() - 1) * exponent > MAX_BITS:
            raise ToolError(f"the result has over {MAX_BITS} bits")
        return int(base**exponent)
    result: Number = base**exponent
    return result


def _factorial(n: Number) -> int:
    if isinstance(n, float) and not n.is_integer():
        raise ToolError("a factorial is of an integer")
    if n > _MAX_FACTORIAL:
        raise ToolError(f"a factorial is of an integer up to {_MAX_FACTORIAL}")
    return math.factorial(int(n))


def _product(values: Sequence[Number]) -> Number:
    result: Number = 1
    for each in values:
        result = _bounded(result * each)
    return result


def _round(value: Number, digits: Number = 0) -> Number:
    places = max(-400, min(400, int(digits)))
    return round(value, places) if places else round(value)


_CONSTANTS: Final[Mapping[str, float]] = {"pi": math.pi, "e": math.e}
_UNARY: Final[Mapping[type, Callable[[Number], Number]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_OPERATORS: Final[Mapping[type, Callable[[Number, Number], Number]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_BINARY: Final[Mapping[str, Callable[[Number, Number], Number]]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "power": _power,
    "modulo": operator.mod,
}
_OF_MANY: Final[Mapping[str, Callable[[Sequence[Number]], Number]]] = {
    "sum": sum,
    "mean": statistics.mean,
    "min": min,
    "max": max,
    "product": _product,
    "std": statistics.pstdev,
}
_OF_FEW: Final[Mapping[str, Callable[..., Number]]] = {
    "abs": abs,
    "round": _round,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "log": math.log,
    "log10": math.log10,
    "exp": math.exp,
    "ceil": math.ceil,
    "floor": math.floor,
    "factorial": _factorial,
}
_FUNCTIONS: Final = (*_OF_MANY, *_OF_FEW)
