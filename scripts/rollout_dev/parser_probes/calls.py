"""Write tool calls in each grammar, as a model does: the canonical text of the vendor's template.

For tests, probes and scripted policies. The inverse, parsing, is in `agent.parsers`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rollout_dev.parser_probes import family_calls
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import ToolCall


def write_calls(tool_format: ToolFormat, calls: Sequence[ToolCall]) -> str:
    """Write the calls of one turn, without the token that ends it; empty without calls.

    Names, arguments and ids are not escaped: in grammars without quotes, text that contains the
    grammar's own tags is indistinguishable from tags.
    """
    return _WRITERS[tool_format](calls) if calls else ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _hermes(calls: Sequence[ToolCall]) -> str:
    bodies = (_json({"name": call.name, "arguments": call.arguments}) for call in calls)
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


def _qwen_xml(calls: Sequence[ToolCall]) -> str:
    def body(call: ToolCall) -> str:
        values = "".join(
            f"<parameter={name}>\n{_plain(value)}\n</parameter>\n"
            for name, value in call.arguments.items()
        )
        return f"<function={call.name}>\n{values}</function>"

    return "\n".join(f"<tool_call>\n{body(call)}\n</tool_call>" for call in calls)


def _glm(calls: Sequence[ToolCall], newline: str) -> str:
    def body(call: ToolCall) -> str:
        return "".join(
            f"<arg_key>{name}</arg_key>{newline}<arg_value>{_plain(value)}</arg_value>{newline}"
            for name, value in call.arguments.items()
        )

    return "\n".join(f"<tool_call>{call.name}{newline}{body(call)}</tool_call>" for call in calls)


def _kimi_k2(calls: Sequence[ToolCall]) -> str:
    bodies = "".join(
        f"<|tool_call_begin|>{call.id or f'functions.{call.name}:{index}'}"
        f"<|tool_call_argument_begin|>{_json(call.arguments)}<|tool_call_end|>"
        for index, call in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{bodies}<|tool_calls_section_end|>"


def _deepseek(calls: Sequence[ToolCall], between: str, body: Callable[[ToolCall], str]) -> str:
    bodies = (f"<｜tool▁call▁begin｜>{body(call)}<｜tool▁call▁end｜>" for call in calls)
    return f"<｜tool▁calls▁begin｜>{between.join(bodies)}<｜tool▁calls▁end｜>"


def _deepseek_v3(calls: Sequence[ToolCall]) -> str:
    return _deepseek(
        calls,
        "\n",
        lambda call: f"function<｜tool▁sep｜>{call.name}\n```json\n{_json(call.arguments)}\n```",
    )


def _deepseek_v31(calls: Sequence[ToolCall]) -> str:
    return _deepseek(calls, "", lambda call: f"{call.name}<｜tool▁sep｜>{_json(call.arguments)}")


def _deepseek_v32(calls: Sequence[ToolCall]) -> str:
    def parameter(name: str, value: object) -> str:
        is_text = "true" if isinstance(value, str) else "false"
        opener = f'<｜DSML｜parameter name="{name}" string="{is_text}">'
        return f"{opener}{_plain(value)}</｜DSML｜parameter>\n"

    return _invoked(calls, "｜DSML｜", "｜DSML｜function_calls", parameter)


def _minimax_m2(calls: Sequence[ToolCall]) -> str:
    def parameter(name: str, value: object) -> str:
        return f'<parameter name="{name}">{_plain(value)}</parameter>\n'

    return _invoked(calls, "", "minimax:tool_call", parameter)


def _invoked(
    calls: Sequence[ToolCall], prefix: str, block: str, parameter: Callable[[str, object], str]
) -> str:
    bodies = "".join(
        f'<{prefix}invoke name="{call.name}">\n'
        + "".join(parameter(name, value) for name, value in call.arguments.items())
        + f"</{prefix}invoke>\n"
        for call in calls
    )
    return f"<{block}>\n{bodies}</{block}>"


def _llama3(calls: Sequence[ToolCall]) -> str:
    return "; ".join(_json({"name": call.name, "parameters": call.arguments}) for call in calls)


def _mistral(calls: Sequence[ToolCall]) -> str:
    bodies = [
        {"name": call.name, "arguments": call.arguments, **({"id": call.id} if call.id else {})}
        for call in calls
    ]
    return f"[TOOL_CALLS] {_json(bodies)}"


def _mistral_v11(calls: Sequence[ToolCall]) -> str:
    return "".join(
        f"[TOOL_CALLS]{call.name}{f'[CALL_ID]{call.id}' if call.id else ''}"
        f"[ARGS]{_json(call.arguments)}"
        for call in calls
    )


def _harmony(calls: Sequence[ToolCall]) -> str:
    return "<|call|><|start|>assistant".join(
        f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>"
        f"{_json(call.arguments)}"
        for call in calls
    )


def _react(calls: Sequence[ToolCall]) -> str:
    return "\n".join(
        f"Action: {call.name}\nAction Input: {_json(call.arguments)}" for call in calls
    )


_WRITERS: Final[Mapping[ToolFormat, Callable[[Sequence[ToolCall]], str]]] = {
    ToolFormat.HERMES: _hermes,
    ToolFormat.QWEN_XML: _qwen_xml,
    ToolFormat.GLM45: lambda calls: _glm(calls, "\n"),
    ToolFormat.GLM47: lambda calls: _glm(calls, ""),
    ToolFormat.KIMI_K2: _kimi_k2,
    ToolFormat.DEEPSEEK_V3: _deepseek_v3,
    ToolFormat.DEEPSEEK_V31: _deepseek_v31,
    ToolFormat.DEEPSEEK_V32: _deepseek_v32,
    ToolFormat.LLAMA3: _llama3,
    ToolFormat.MISTRAL: _mistral,
    ToolFormat.MISTRAL_V11: _mistral_v11,
    ToolFormat.HARMONY: _harmony,
    ToolFormat.MINIMAX_M2: _minimax_m2,
    ToolFormat.REACT: _react,
    **family_calls.WRITERS,
}
