"""Write tool calls of single families, as their templates do. Part of `calls.write_calls`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from swe_rollout.agent.call_text import write_calls as write_in_words
from swe_rollout.agent.tools.arguments import json_types
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import ToolCall

_NS: Final = "]<]minimax[>["


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _named(call: ToolCall) -> dict[str, object]:
    return {"name": call.name, "arguments": call.arguments}


def _listed(calls: Sequence[ToolCall], opener: str, closer: str = "") -> str:
    return f"{opener}{_json([_named(call) for call in calls])}{closer}"


def _objects(calls: Sequence[ToolCall], opener: str, closer: str = "") -> str:
    return "".join(f"{opener}{_json(_named(call))}{closer}" for call in calls)


def _minimax_m1(calls: Sequence[ToolCall]) -> str:
    lines = "".join(f"{_json(_named(call))}\n" for call in calls)
    return f"<tool_calls>\n{lines}</tool_calls>"


def _internlm(calls: Sequence[ToolCall]) -> str:
    return "".join(
        f"<|action_start|><|plugin|>\n{_json({'name': call.name, 'parameters': call.arguments})}"
        "<|action_end|>"
        for call in calls
    )


def _apertus(calls: Sequence[ToolCall]) -> str:
    return (
        f"<|tools_prefix|>{_json([{call.name: call.arguments} for call in calls])}<|tools_suffix|>"
    )


def _cohere(calls: Sequence[ToolCall]) -> str:
    written = [
        {"tool_call_id": call.id or str(at), "tool_name": call.name, "parameters": call.arguments}
        for at, call in enumerate(calls)
    ]
    return f"<|START_ACTION|>{_json(written)}<|END_ACTION|>"


def _command_r(calls: Sequence[ToolCall]) -> str:
    written = [{"tool_name": call.name, "parameters": call.arguments} for call in calls]
    return f"Action: ```json\n{_json(written)}```"


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


def _deepseek_v4(calls: Sequence[ToolCall]) -> str:
    def parameter(name: str, value: object) -> str:
        is_text = "true" if isinstance(value, str) else "false"
        opener = f'<｜DSML｜parameter name="{name}" string="{is_text}">'
        return f"{opener}{_plain(value)}</｜DSML｜parameter>\n"

    return _invoked(calls, "｜DSML｜", "｜DSML｜tool_calls", parameter)


def _muse(calls: Sequence[ToolCall]) -> str:
    def parameter(name: str, value: object) -> str:
        return f'<atem:parameter name="{name}">{_plain(value)}</atem:parameter>\n'

    return _invoked(calls, "atem:", "atem:function_calls", parameter)


def _invoked(
    calls: Sequence[ToolCall], prefix: str, block: str, parameter: Callable[[str, object], str]
) -> str:
    written = "".join(
        f'<{prefix}invoke name="{call.name}">\n'
        + "".join(parameter(name, value) for name, value in call.arguments.items())
        + f"</{prefix}invoke>\n"
        for call in calls
    )
    return f"<{block}>\n{written}</{block}>"


def _seed(calls: Sequence[ToolCall]) -> str:
    def body(call: ToolCall) -> str:
        return "".join(
            f"<parameter={name}>{_plain(value)}</parameter>\n"
            for name, value in call.arguments.items()
        )

    return "\n".join(
        f"<seed:tool_call>\n<function={call.name}>\n{body(call)}</function>\n</seed:tool_call>"
        for call in calls
    )


def _minicpm(calls: Sequence[ToolCall]) -> str:
    return "\n".join(
        f'<function name="{call.name}">'
        + "".join(
            f'<param name="{name}">{_plain(value)}</param>'
            for name, value in call.arguments.items()
        )
        + "</function>"
        for call in calls
    )


def _functionary(calls: Sequence[ToolCall]) -> str:
    return "".join(f"<function={call.name}>{_json(call.arguments)}</function>" for call in calls)


def _solar(calls: Sequence[ToolCall]) -> str:
    return "<|tool_calls|>" + "".join(
        f"<|tool_call:begin|>{call.id}<|tool_call:name|>{call.name}"
        f"<|tool_call:args|>{_json(call.arguments)}<|tool_call:end|>"
        for call in calls
    )


def _hy3(calls: Sequence[ToolCall]) -> str:
    def body(call: ToolCall) -> str:
        return "".join(
            f"<arg_key:opensource>{name}</arg_key:opensource>\n"
            f"<arg_value:opensource>{_plain(value)}</arg_value:opensource>\n"
            for name, value in call.arguments.items()
        )

    return "".join(
        f"<tool_call:opensource>{call.name}<tool_sep:opensource>\n{body(call)}"
        "</tool_call:opensource>\n"
        for call in calls
    )


WRITERS: Final[Mapping[ToolFormat, Callable[[Sequence[ToolCall]], str]]] = {
    ToolFormat.HUNYUAN: partial(_listed, opener="<tool_calls>", closer="</tool_calls>"),
    ToolFormat.MINIMAX_M1: _minimax_m1,
    ToolFormat.NEMOTRON: partial(_listed, opener="<TOOLCALL>", closer="</TOOLCALL>"),
    ToolFormat.GRANITE: partial(_listed, opener="<|tool_call|>"),
    ToolFormat.GRANITE_20B: partial(_objects, opener="<function_call>"),
    ToolFormat.PHI4: partial(_listed, opener="<|tool_call|>", closer="<|/tool_call|>"),
    ToolFormat.GIGACHAT: partial(_objects, opener="<|function_call|>"),
    ToolFormat.INTERNLM: _internlm,
    ToolFormat.APERTUS: _apertus,
    ToolFormat.FUNCTOOLS: partial(_listed, opener="functools"),
    ToolFormat.COHERE: _cohere,
    ToolFormat.COMMAND_R: _command_r,
    ToolFormat.XLAM: partial(_listed, opener=""),
    ToolFormat.LFM2: partial(write_in_words, ToolFormat.LFM2),
    ToolFormat.PYTHONIC: partial(write_in_words, ToolFormat.PYTHONIC),
    ToolFormat.OLMO3: _olmo3,
    ToolFormat.GEMMA4: _gemma4,
    ToolFormat.KIMI_K3: _kimi_k3,
    ToolFormat.MINIMAX_M3: _minimax_m3,
    ToolFormat.DEEPSEEK_V4: _deepseek_v4,
    ToolFormat.MUSE: _muse,
    ToolFormat.SEED: _seed,
    ToolFormat.MINICPM: _minicpm,
    ToolFormat.FUNCTIONARY: _functionary,
    ToolFormat.SOLAR: _solar,
    ToolFormat.HY3: _hy3,
}
