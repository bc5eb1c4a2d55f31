"""Parsers of tool calls, one for each grammar. Strict: nothing is repaired, nothing is guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swe_rollout.agent.parsers.hermes import HermesParser
from swe_rollout.agent.parsers.qwen_xml import QwenXmlParser
from swe_rollout.tool_format import ToolFormat

if TYPE_CHECKING:
    from swe_rollout.agent.parsers.base import ToolCallParser

__all__ = ["parser_for"]


def parser_for(tool_format: ToolFormat) -> ToolCallParser:
    """The parser of a grammar."""
    match tool_format:
        case ToolFormat.HERMES:
            return HermesParser()
        case ToolFormat.QWEN_XML:
            return QwenXmlParser()
        case _:
            raise NotImplementedError(tool_format)
