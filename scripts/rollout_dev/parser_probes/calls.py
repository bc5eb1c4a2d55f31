"""Write tool calls in each grammar as a model does: in the canonical text of the vendor's template.

Used by tests, probes and scripted policies. The inverse, parsing, is in `agent.parsers`. A grammar
is a row of `_FORMS`; functions write the few with nested values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

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
    form = _FORMS.get(tool_format)
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


def _invoked(prefix: str, block: str, kind: str = "") -> _Text:
    return _Text(
        f'<{prefix}invoke name="{{name}}">\n{{values}}</{prefix}invoke>\n',
        f'<{prefix}parameter name="{{0}}"{kind}>{{1}}</{prefix}parameter>\n',
        head=f"<{block}>\n",
        tail=f"</{block}>",
    )


_DSML_KIND: Final = ' string="{2}"'
_FORMS: Final[Mapping[str, CallText]] = {
    **CALL_TEXTS,
    ToolFormat.QWEN_XML: _Text(
        "<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>",
        "<parameter={}>\n{}\n</parameter>\n",
        "\n",
    ),
    ToolFormat.GLM45: _Text(
        "<tool_call>{name}\n{values}</tool_call>",
        "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n",
        "\n",
    ),
    ToolFormat.GLM47: _Text(
        "<tool_call>{name}{values}</tool_call>",
        "<arg_key>{}</arg_key><arg_value>{}</arg_value>",
        "\n",
    ),
    ToolFormat.KIMI_K2: _Text(
        "<|tool_call_begin|>{kimi_id}<|tool_call_argument_begin|>{json}<|tool_call_end|>",
        head="<|tool_calls_section_begin|>",
        tail="<|tool_calls_section_end|>",
    ),
    ToolFormat.DEEPSEEK_V31: replace(CALL_TEXTS[ToolFormat.DEEPSEEK_V31], between=""),
    ToolFormat.DEEPSEEK_V32: _invoked("｜DSML｜", "｜DSML｜function_calls", _DSML_KIND),
    ToolFormat.LLAMA3: _Text("{parameters}", between="; "),
    ToolFormat.MISTRAL: _Text.list_of("{with_id}", "[TOOL_CALLS] "),
    ToolFormat.MISTRAL_V11: _Text("[TOOL_CALLS]{name}{marked_id}[ARGS]{json}"),
    ToolFormat.HARMONY: _Text(
        "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json}",
        between="<|call|><|start|>assistant",
    ),
    ToolFormat.MINIMAX_M2: _invoked("", "minimax:tool_call"),
    ToolFormat.HUNYUAN: _Text.list_of("{object}", "<tool_calls>", "</tool_calls>"),
    ToolFormat.MINIMAX_M1: _Text("{object}\n", head="<tool_calls>\n", tail="</tool_calls>"),
    ToolFormat.NEMOTRON: _Text.list_of("{object}", "<TOOLCALL>", "</TOOLCALL>"),
    ToolFormat.GRANITE_20B: _Text("<function_call>{object}"),
    ToolFormat.PHI4: _Text.list_of("{object}", "<|tool_call|>", "<|/tool_call|>"),
    ToolFormat.GIGACHAT: _Text("<|function_call|>{object}"),
    ToolFormat.APERTUS: _Text.list_of(
        "{{{quoted}: {json}}}", "<|tools_prefix|>", "<|tools_suffix|>"
    ),
    ToolFormat.COHERE: _Text.list_of(
        '{{"tool_call_id": {quoted_id}, "tool_name": {quoted}, "parameters": {json}}}',
        "<|START_ACTION|>",
        "<|END_ACTION|>",
    ),
    ToolFormat.COMMAND_R: _Text.list_of("{tool_named}", "Action: ```json\n", "```"),
    ToolFormat.XLAM: _Text.list_of("{object}", ""),
    ToolFormat.OLMO3: _Text("{python}", "", "\n", "<function_calls>", "</function_calls>"),
    ToolFormat.DEEPSEEK_V4: _invoked("｜DSML｜", "｜DSML｜tool_calls", _DSML_KIND),
    ToolFormat.MUSE: _invoked("atem:", "atem:function_calls"),
    ToolFormat.SEED: _Text(
        "<seed:tool_call>\n<function={name}>\n{values}</function>\n</seed:tool_call>",
        "<parameter={}>{}</parameter>\n",
        "\n",
    ),
    ToolFormat.MINICPM: _Text(
        '<function name="{name}">{values}</function>', '<param name="{}">{}</param>', "\n"
    ),
    ToolFormat.FUNCTIONARY: _Text("<function={name}>{json}</function>"),
    ToolFormat.SOLAR: _Text(
        "<|tool_call:begin|>{id}<|tool_call:name|>{name}<|tool_call:args|>{json}<|tool_call:end|>",
        head="<|tool_calls|>",
    ),
    ToolFormat.HY3: _Text(
        "<tool_call:opensource>{name}<tool_sep:opensource>\n{values}</tool_call:opensource>\n",
        "<arg_key:opensource>{}</arg_key:opensource>\n"
        "<arg_value:opensource>{}</arg_value:opensource>\n",
    ),
}


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
