"""Call formats under the names that users of strands-sglang know; ours are included.

A parser here only names a format. `swe_rollout.agent.parsers` reads the calls, from ids instead of
text, and checks them against the agent's tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from swe_rollout.agent.parsers import parser_for
from swe_rollout.spec.tool_format import ToolFormat

_OTHER_NAMES: Final = {
    "glm": ToolFormat.GLM45,
    "qwen25": ToolFormat.HERMES,
    "qwen3_coder": ToolFormat.QWEN_XML,
}


@dataclass(frozen=True, slots=True)
class ToolParser:
    """A format of calls."""

    tool_format: str
    """Built-in, or `module:attr`."""


def get_tool_parser(name: str) -> ToolParser:
    """Return the format of that name; raises ExtensionError if there is none."""
    tool_format = _OTHER_NAMES.get(name, name)
    parser_for(tool_format)
    return ToolParser(tool_format)


class HermesToolParser(ToolParser):
    """`<tool_call>` around JSON (Qwen2.5, Qwen3)."""

    def __init__(self) -> None:
        super().__init__(ToolFormat.HERMES)


class QwenXMLToolParser(ToolParser):
    """`<tool_call>` around `<function=…>` (Qwen3-Coder, Qwen3.5)."""

    def __init__(self) -> None:
        super().__init__(ToolFormat.QWEN_XML)


class GLMToolParser(ToolParser):
    """`<tool_call>NAME` and `<arg_key>` (GLM-4.5 to 5)."""

    def __init__(self) -> None:
        super().__init__(ToolFormat.GLM45)


class KimiK2ToolParser(ToolParser):
    """A section of calls with ids (Kimi K2)."""

    def __init__(self) -> None:
        super().__init__(ToolFormat.KIMI_K2)
