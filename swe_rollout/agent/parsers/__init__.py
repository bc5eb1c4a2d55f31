"""Parsers of tool calls: one module for each family of formats, with one row for each format.

They are strict: they repair nothing and guess nothing.
"""

from __future__ import annotations

from typing import Final

from swe_rollout.agent.parsers.base import ToolCallParser
from swe_rollout.extension import ExtensionPoint
from swe_rollout.spec.tool_format import TextFormat, ToolFormat

__all__ = ["CALL_FORMATS", "parser_for"]

_FAMILIES: Final[dict[str, tuple[ToolFormat | TextFormat, ...]]] = {
    "json_call": (
        *(ToolFormat.HERMES, ToolFormat.HUNYUAN, ToolFormat.MINIMAX_M1, ToolFormat.NEMOTRON),
        *(ToolFormat.GRANITE, ToolFormat.GRANITE_20B, ToolFormat.PHI4, ToolFormat.GIGACHAT),
        *(ToolFormat.INTERNLM, ToolFormat.APERTUS, ToolFormat.FUNCTOOLS, ToolFormat.COHERE),
        *(ToolFormat.COMMAND_R, ToolFormat.XLAM, ToolFormat.FUNCTIONARY, ToolFormat.SOLAR),
    ),
    "json_sequence": (ToolFormat.LLAMA3, ToolFormat.MISTRAL, ToolFormat.MISTRAL_V11),
    "sections": (ToolFormat.KIMI_K2, ToolFormat.DEEPSEEK_V3, ToolFormat.DEEPSEEK_V31),
    "harmony": (ToolFormat.HARMONY,),
    "element": (
        *(ToolFormat.QWEN_XML, ToolFormat.GLM45, ToolFormat.GLM47, ToolFormat.SEED),
        *(ToolFormat.MINICPM, ToolFormat.HY3, TextFormat.FUNCTION_XML),
    ),
    "invoke": (
        *(ToolFormat.DEEPSEEK_V32, ToolFormat.DEEPSEEK_V4, ToolFormat.MINIMAX_M2, ToolFormat.MUSE),
    ),
    "typed_tags": (
        *(ToolFormat.GEMMA4, ToolFormat.FUNCTIONGEMMA),
        *(ToolFormat.KIMI_K3, ToolFormat.MINIMAX_M3),
    ),
    "pythonic": (ToolFormat.LFM2, ToolFormat.PYTHONIC, ToolFormat.OLMO3),
    "lines": (
        *(ToolFormat.REACT, TextFormat.THOUGHT_ACTION, TextFormat.TOOL_CALL_LINE),
        *(TextFormat.ACTION_JSON, ToolFormat.GLM4),
    ),
}

CALL_FORMATS: ExtensionPoint[ToolCallParser] = ExtensionPoint(
    "call format",
    group="swe_rollout.call_formats",
    accepts=lambda value: callable(getattr(value, "parse", None)),
    expected="a class with `parse`, such as the ToolCallParsers of swe_rollout.agent.parsers",
    builtin={
        form: f"{__name__}.{family}:{form.upper()}"
        for family, forms in _FAMILIES.items()
        for form in forms
    },
)


def parser_for(name: str) -> ToolCallParser:
    """Return the parser of a built-in format, or of a format named as `module:attr`."""
    return CALL_FORMATS.load(name)
