"""Write tool calls in each grammar, as a model does: the canonical text of the vendor's template.

For tests, probes and scripted policies. The inverse, parsing, is in `agent.parsers`. A grammar is a
row of `_FORMS`; functions write the few whose values nest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from swe_rollout.agent.call_text import write_calls as write_in_words
from swe_rollout.agent.tools.arguments import json_types
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import ToolCall

_NS: Final = "]<]minimax[>["


def write_calls(tool_format: ToolFormat, calls: Sequence[ToolCall]) -> str:
    """Write the calls of one turn, without the token that ends it; empty without calls.

    Names, arguments and ids are not escaped: in grammars without quotes, text that contains the
    grammar's own tags is indistinguishable from tags.
    """
    if not calls:
        return ""
    form = _FORMS.get(tool_format)
    return form.write(calls) if form else _WRITERS[tool_format](calls)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


@dataclass(frozen=True, slots=True)
class _Form:
    """A grammar whose calls stand side by side."""

    each: str
    """One call, as a format string over the fields that `_fields` returns."""
    value: str = ""
    """One argument, as a format string over its key, its value and whether the value is text."""
    between: str = ""
    head: str = ""
    tail: str = ""

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Write the calls of one turn."""
        written = (self.each.format(**self._fields(call, at)) for at, call in enumerate(calls))
        return f"{self.head}{self.between.join(written)}{self.tail}"

    def _fields(self, call: ToolCall, at: int) -> dict[str, str]:
        arguments = call.arguments
        named = {"name": call.name, "arguments": arguments}
        return {
            "name": call.name,
            "json": _json(arguments),
            "object": _json(named),
            "with_id": _json(named | ({"id": call.id} if call.id else {})),
            "parameters": _json({"name": call.name, "parameters": arguments}),
            "quoted": _json(call.name),
            "id": call.id,
            "quoted_id": _json(call.id or str(at)),
            "kimi_id": call.id or f"functions.{call.name}:{at}",
            "marked_id": f"[CALL_ID]{call.id}" if call.id else "",
            "values": "".join(
                self.value.format(key, _plain(value), _json(isinstance(value, str)))
                for key, value in arguments.items()
            ),
        }


def _listed(opener: str, closer: str = "") -> _Form:
    return _Form("{object}", between=", ", head=f"{opener}[", tail=f"]{closer}")


def _invoked(prefix: str, block: str, kind: str = "") -> _Form:
    return _Form(
        f'<{prefix}invoke name="{{name}}">\n{{values}}</{prefix}invoke>\n',
        f'<{prefix}parameter name="{{0}}"{kind}>{{1}}</{prefix}parameter>\n',
        head=f"<{block}>\n",
        tail=f"</{block}>",
    )


_DSML_KIND: Final = ' string="{2}"'
_DEEPSEEK: Final = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_FORMS: Final[Mapping[ToolFormat, _Form]] = {
    ToolFormat.HERMES: _Form("<tool_call>\n{object}\n</tool_call>", between="\n"),
    ToolFormat.QWEN_XML: _Form(
        "<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>",
        "<parameter={}>\n{}\n</parameter>\n",
        "\n",
    ),
    ToolFormat.GLM45: _Form(
        "<tool_call>{name}\n{values}</tool_call>",
        "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n",
        "\n",
    ),
    ToolFormat.GLM47: _Form(
        "<tool_call>{name}{values}</tool_call>",
        "<arg_key>{}</arg_key><arg_value>{}</arg_value>",
        "\n",
    ),
    ToolFormat.KIMI_K2: _Form(
        "<|tool_call_begin|>{kimi_id}<|tool_call_argument_begin|>{json}<|tool_call_end|>",
        head="<|tool_calls_section_begin|>",
        tail="<|tool_calls_section_end|>",
    ),
    ToolFormat.DEEPSEEK_V3: _Form(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{json}\n```<｜tool▁call▁end｜>",
        "",
        "\n",
        *_DEEPSEEK,
    ),
    ToolFormat.DEEPSEEK_V31: _Form(
        "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json}<｜tool▁call▁end｜>", "", "", *_DEEPSEEK
    ),
    ToolFormat.DEEPSEEK_V32: _invoked("｜DSML｜", "｜DSML｜function_calls", _DSML_KIND),
    ToolFormat.LLAMA3: _Form("{parameters}", between="; "),
    ToolFormat.MISTRAL: _Form("{with_id}", between=", ", head="[TOOL_CALLS] [", tail="]"),
    ToolFormat.MISTRAL_V11: _Form("[TOOL_CALLS]{name}{marked_id}[ARGS]{json}"),
    ToolFormat.HARMONY: _Form(
        "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json}",
        between="<|call|><|start|>assistant",
    ),
    ToolFormat.MINIMAX_M2: _invoked("", "minimax:tool_call"),
    ToolFormat.REACT: _Form("Action: {name}\nAction Input: {json}", between="\n"),
    ToolFormat.HUNYUAN: _listed("<tool_calls>", "</tool_calls>"),
    ToolFormat.MINIMAX_M1: _Form("{object}\n", head="<tool_calls>\n", tail="</tool_calls>"),
    ToolFormat.NEMOTRON: _listed("<TOOLCALL>", "</TOOLCALL>"),
    ToolFormat.GRANITE: _listed("<|tool_call|>"),
    ToolFormat.GRANITE_20B: _Form("<function_call>{object}"),
    ToolFormat.PHI4: _listed("<|tool_call|>", "<|/tool_call|>"),
    ToolFormat.GIGACHAT: _Form("<|function_call|>{object}"),
    ToolFormat.INTERNLM: _Form("<|action_start|><|plugin|>\n{parameters}<|action_end|>"),
    ToolFormat.APERTUS: _Form(
        "{{{quoted}: {json}}}", "", ", ", "<|tools_prefix|>[", "]<|tools_suffix|>"
    ),
    ToolFormat.FUNCTOOLS: _listed("functools"),
    ToolFormat.COHERE: _Form(
        '{{"tool_call_id": {quoted_id}, "tool_name": {quoted}, "parameters": {json}}}',
        between=", ",
        head="<|START_ACTION|>[",
        tail="]<|END_ACTION|>",
    ),
    ToolFormat.COMMAND_R: _Form(
        '{{"tool_name": {quoted}, "parameters": {json}}}', "", ", ", "Action: ```json\n[", "]```"
    ),
    ToolFormat.XLAM: _listed(""),
    ToolFormat.DEEPSEEK_V4: _invoked("｜DSML｜", "｜DSML｜tool_calls", _DSML_KIND),
    ToolFormat.MUSE: _invoked("atem:", "atem:function_calls"),
    ToolFormat.SEED: _Form(
        "<seed:tool_call>\n<function={name}>\n{values}</function>\n</seed:tool_call>",
        "<parameter={}>{}</parameter>\n",
        "\n",
    ),
    ToolFormat.MINICPM: _Form(
        '<function name="{name}">{values}</function>', '<param name="{}">{}</param>', "\n"
    ),
    ToolFormat.FUNCTIONARY: _Form("<function={name}>{json}</function>"),
    ToolFormat.SOLAR: _Form(
        "<|tool_call:begin|>{id}<|tool_call:name|>{name}<|tool_call:args|>{json}<|tool_call:end|>",
        head="<|tool_calls|>",
    ),
    ToolFormat.HY3: _Form(
        "<tool_call:opensource>{name}<tool_sep:opensource>\n{values}</tool_call:opensource>\n",
        "<arg_key:opensource>{}</arg_key:opensource>\n"
        "<arg_value:opensource>{}</arg_value:opensource>\n",
    ),
}


def _olmo3(calls: Sequence[ToolCall]) -> str:
    lines = (write_in_words(ToolFormat.PYTHONIC, [call])[1:-1] for call in calls)
    return "<function_calls>" + "\n".join(lines) + "</function_calls>"


def _gemma4(calls: Sequence[ToolCall]) -> str:
    return "".join(
        f"<|tool_call>call:{call.name}{_gemma_value(call.arguments, quoted=False)}<tool_call|>"
        for call in calls
    )


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
            return _json(value)


def _kimi_k3(calls: Sequence[ToolCall]) -> str:
    def argument(key: str, value: object) -> str:
        (kind,) = json_types(value) - {"integer"}
        name = key.replace("&", "&amp;").replace('"', "&quot;")
        return (
            f'<|open|>argument key="{name}" type="{kind}"<|sep|>{_plain(value)}'
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
                inner = _plain(value)
        return f"{_NS}<{key}>{inner}{_NS}</{key}>"

    written = "".join(
        f'{_NS}<invoke name="{call.name}">'
        + "".join(element(key, value) for key, value in call.arguments.items())
        + f"{_NS}</invoke>\n"
        for call in calls
    )
    return f"{_NS}<tool_call>\n{written}{_NS}</tool_call>"


_WRITERS: Final[Mapping[ToolFormat, Callable[[Sequence[ToolCall]], str]]] = {
    ToolFormat.LFM2: partial(write_in_words, ToolFormat.LFM2),
    ToolFormat.PYTHONIC: partial(write_in_words, ToolFormat.PYTHONIC),
    ToolFormat.OLMO3: _olmo3,
    ToolFormat.GEMMA4: _gemma4,
    ToolFormat.KIMI_K3: _kimi_k3,
    ToolFormat.MINIMAX_M3: _minimax_m3,
}
