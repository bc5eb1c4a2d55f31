"""ToolFormat: how a model writes a call. Parsers read it, scripted policies write it."""

from __future__ import annotations

from enum import StrEnum


class ToolFormat(StrEnum):
    """The grammar of calls; the names of `spec.agent.toolFormat`."""

    HERMES = "hermes"
    """`<tool_call>` around one JSON object (Qwen2.5, Qwen3)."""
    QWEN_XML = "qwen_xml"
    """`<tool_call>` around `<function=…>` and `<parameter=…>` (Qwen3-Coder, Qwen3.5)."""
