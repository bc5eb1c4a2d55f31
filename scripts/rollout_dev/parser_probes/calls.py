"""Write tool calls in each grammar as a model does: in the canonical text of the vendor's template.

Used by tests, probes and scripted policies. The inverse, parsing, is in `agent.parsers`. A grammar
is a row of `calls.yaml`; functions write the few with nested values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import yaml

from swe_rollout.agent.call_text import CALL_TEXTS, CallText, plain_value
from swe_rollout.agent.tools.arguments import json_types
from swe_rollout.spec.tool_format import TextFormat, ToolFormat
from swe_rollout.types.turn import ToolCall

_NS: Final = "]<]minimax[>["


def write_calls(tool_format: ToolFormat | TextFormat, calls: Sequence[ToolCall]) -> str:
    """Write the calls of one turn, without the token that ends it; empty without calls.

    Names, arguments and ids are not escaped: in grammars without quotes, text that contains the
    grammar's own tags is indistinguishable from tags.
    """
    if not calls:
        return ""
    form = _forms().get(tool_format)
    return form.write(calls) if form else _WRITERS[tool_format](calls)


class _Text(CallText):
    """The text of a format whose calls have ids."""

    def fields(self, call: ToolCall, at: int) -> dict[str, str]:
        named = {"name": call.name, "arguments": call.arguments}
        return super().fields(call, at) | {
            "with_id": plain_value(named | ({"id": call.id} if call.id else {})),
            "quoted": json.dumps(call.name, ensure_ascii=False),
            "id": call.id,
            "quoted_id": json.dumps(call.id or str(at), ensure_ascii=False),
            "kimi_id": call.id or f"functions.{call.name}:{at}",
            "marked_id": f"[CALL_ID]{call.id}" if call.id else "",
        }


@cache
def _forms() -> Mapping[str, CallText]:
    rows = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    return {**CALL_TEXTS, **{ToolFormat(name): _Text(**row) for name, row in rows.items()}}


def _gemma4(calls: Sequence[ToolCall]) -> str:
    return "".join(
        f"<|tool_call>call:{call.name}{_gemma_value(call.arguments, quoted=False)}<tool_call|>"
        for call in calls
    )


def _glm4(calls: Sequence[ToolCall]) -> str:
    written = (f"{each.name}\n{json.dumps(each.arguments, ensure_ascii=False)}" for each in calls)
    return "<|assistant|>".join(written)


def _functiongemma(calls: Sequence[ToolCall]) -> str:
    text = _gemma4(calls).replace("<|tool_call>", "<start_function_call>")
    return text.replace("<tool_call|>", "<end_function_call>").replace('<|"|>', "<escape>")


def _gemma_value(value: object, *, quoted: bool = True) -> str:
    match value:
        case str():
            return f'<|"|>{value}<|"|>'
        case dict():
            mark = '<|"|>' if quoted else ""
            inner = (f"{mark}{key}{mark}:{_gemma_value(each)}" for key, each in value.items())
            return f"{{{','.join(inner)}}}"
        case list():
            return f"[{','.join(map(_gemma_value, value))}]"
        case _:
            return plain_value(value)


def _kimi_k3(calls: Sequence[ToolCall]) -> str:
    def argument(key: str, value: object) -> str:
        (kind,) = json_types(value) - {"integer"}
        name = key.replace("&", "&amp;").replace('"', "&quot;")
        return (
            f'<|open|>argument key="{name}" type="{kind}"<|sep|>{plain_value(value)}'
            "<|close|>argument<|sep|>"
        )

    written = "".join(
        f'<|open|>call tool="{call.name}" index="{at}"<|sep|>'
        + "".join(argument(key, value) for key, value in call.arguments.items())
        + "<|close|>call<|sep|>"
        for at, call in enumerate(calls, 1)
    )
    return f"<|open|>tools<|sep|>{written}<|close|>tools<|sep|>"


def _minimax_m3(calls: Sequence[ToolCall]) -> str:
    def element(key: str, value: object) -> str:
        match value:
            case dict():
                inner = "".join(element(name, each) for name, each in value.items())
            case list():
                inner = "".join(element("item", each) for each in value)
            case _:
                inner = plain_value(value)
        return f"{_NS}<{key}>{inner}{_NS}</{key}>"

    written = "".join(
        f'{_NS}<invoke name="{call.name}">'
        + "".join(element(key, value) for key, value in call.arguments.items())
        + f"{_NS}</invoke>\n"
        for call in calls
    )
    return f"{_NS}<tool_call>\n{written}{_NS}</tool_call>"


_WRITERS: Final[Mapping[str, Callable[[Sequence[ToolCall]], str]]] = {
    ToolFormat.GEMMA4: _gemma4,
    ToolFormat.GLM4: _glm4,
    ToolFormat.FUNCTIONGEMMA: _functiongemma,
    ToolFormat.KIMI_K3: _kimi_k3,
    ToolFormat.MINIMAX_M3: _minimax_m3,
}
