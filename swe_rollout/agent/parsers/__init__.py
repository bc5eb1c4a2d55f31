"""Parsers of tool calls, one for each format. Strict: nothing is repaired, nothing is guessed."""

from __future__ import annotations

from swe_rollout.agent.parsers.base import ToolCallParser
from swe_rollout.extension import ExtensionPoint
from swe_rollout.spec.tool_format import TextFormat, ToolFormat

__all__ = ["CALL_FORMATS", "parser_for"]

_HERE = "swe_rollout.agent.parsers"

CALL_FORMATS: ExtensionPoint[ToolCallParser] = ExtensionPoint(
    "call format",
    group="swe_rollout.call_formats",
    accepts=lambda value: callable(getattr(value, "parse", None)),
    expected="a class with `parse`, such as the ToolCallParsers of swe_rollout.agent.parsers",
    builtin={
        ToolFormat.HERMES: f"{_HERE}.hermes:HERMES",
        ToolFormat.QWEN_XML: f"{_HERE}.qwen_xml:QWEN_XML",
        ToolFormat.GLM45: f"{_HERE}.glm:GLM",
        ToolFormat.GLM47: f"{_HERE}.glm:GLM",
        ToolFormat.KIMI_K2: f"{_HERE}.sections:KIMI_K2",
        ToolFormat.DEEPSEEK_V3: f"{_HERE}.sections:DEEPSEEK_V3",
        ToolFormat.DEEPSEEK_V31: f"{_HERE}.sections:DEEPSEEK_V31",
        ToolFormat.DEEPSEEK_V32: f"{_HERE}.invoke:DEEPSEEK_V32",
        ToolFormat.LLAMA3: f"{_HERE}.llama3:Llama3Parser",
        ToolFormat.MISTRAL: f"{_HERE}.mistral:MISTRAL",
        ToolFormat.MISTRAL_V11: f"{_HERE}.mistral:MISTRAL_V11",
        ToolFormat.HARMONY: f"{_HERE}.harmony:HarmonyParser",
        ToolFormat.MINIMAX_M2: f"{_HERE}.invoke:MINIMAX_M2",
        ToolFormat.HUNYUAN: f"{_HERE}.wrapped_json:HUNYUAN",
        ToolFormat.MINIMAX_M1: f"{_HERE}.wrapped_json:MINIMAX_M1",
        ToolFormat.NEMOTRON: f"{_HERE}.wrapped_json:NEMOTRON",
        ToolFormat.GRANITE: f"{_HERE}.wrapped_json:GRANITE",
        ToolFormat.GRANITE_20B: f"{_HERE}.wrapped_json:GRANITE_20B",
        ToolFormat.PHI4: f"{_HERE}.wrapped_json:PHI4",
        ToolFormat.GIGACHAT: f"{_HERE}.wrapped_json:GIGACHAT",
        ToolFormat.INTERNLM: f"{_HERE}.wrapped_json:INTERNLM",
        ToolFormat.APERTUS: f"{_HERE}.wrapped_json:APERTUS",
        ToolFormat.FUNCTOOLS: f"{_HERE}.wrapped_json:FUNCTOOLS",
        ToolFormat.COHERE: f"{_HERE}.wrapped_json:COHERE",
        ToolFormat.COMMAND_R: f"{_HERE}.wrapped_json:COMMAND_R",
        ToolFormat.XLAM: f"{_HERE}.wrapped_json:XLAM",
        ToolFormat.LFM2: f"{_HERE}.pythonic:LFM2",
        ToolFormat.PYTHONIC: f"{_HERE}.pythonic:PYTHONIC",
        ToolFormat.OLMO3: f"{_HERE}.pythonic:OLMO3",
        ToolFormat.GEMMA4: f"{_HERE}.typed_tags:GEMMA4",
        ToolFormat.KIMI_K3: f"{_HERE}.typed_tags:KIMI_K3",
        ToolFormat.MINIMAX_M3: f"{_HERE}.typed_tags:MINIMAX_M3",
        ToolFormat.DEEPSEEK_V4: f"{_HERE}.element:DEEPSEEK_V4",
        ToolFormat.MUSE: f"{_HERE}.element:MUSE",
        ToolFormat.SEED: f"{_HERE}.element:SEED",
        ToolFormat.MINICPM: f"{_HERE}.element:MINICPM",
        ToolFormat.FUNCTIONARY: f"{_HERE}.element:FUNCTIONARY",
        ToolFormat.SOLAR: f"{_HERE}.element:SOLAR",
        ToolFormat.HY3: f"{_HERE}.element:HY3",
        ToolFormat.REACT: f"{_HERE}.react:ReactParser",
        TextFormat.THOUGHT_ACTION: f"{_HERE}.thought_action:ThoughtActionParser",
        TextFormat.TOOL_CALL_LINE: f"{_HERE}.tool_call_line:ToolCallLineParser",
        TextFormat.ACTION_JSON: f"{_HERE}.action_json:ActionJsonParser",
        TextFormat.FUNCTION_XML: f"{_HERE}.function_xml:FUNCTION_XML",
    },
)


def parser_for(name: str) -> ToolCallParser:
    """Return the parser of a built-in format, or of one named as `module:attr`."""
    return CALL_FORMATS.load(name)
