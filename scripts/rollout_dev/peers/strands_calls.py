"""The parsers of strands-sglang, which read text; arguments are checked by their caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from rollout_dev.parser_probes.probes import ParserProbe
from rollout_dev.peers.parser_base import PeerCalls, PeerParser, checked_call, parse_each
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall


class _StrandsResult(Protocol):
    name: str
    input: object
    raw: str | None


class _StrandsParser(Protocol):
    def parse(self, text: str) -> Sequence[_StrandsResult]: ...


class Strands(PeerParser):
    """strands-sglang."""

    name = "strands-sglang 0.4.3"
    formats = frozenset(
        {
            *(ToolFormat.HERMES, ToolFormat.QWEN_XML, ToolFormat.GLM45, ToolFormat.GLM47),
            ToolFormat.KIMI_K2,
        }
    )

    def parse(self, probes: Sequence[ParserProbe]) -> Sequence[PeerCalls]:
        return parse_each(self._parse, probes)

    def _parse(self, probe: ParserProbe) -> list[ToolCall]:
        from strands_sglang.tool_parsers import get_tool_parser  # noqa: PLC0415 - a peer

        names = {ToolFormat.GLM45: "glm", ToolFormat.GLM47: "glm"}
        parser = cast(
            "_StrandsParser", get_tool_parser(names.get(probe.tool_format, probe.tool_format.value))
        )
        return [_strands_call(found, probe) for found in parser.parse(probe.sampled().text)]


def _strands_call(result: _StrandsResult, probe: ParserProbe) -> ToolCall:
    if result.raw is not None:
        return ToolCall(CallStatus.MALFORMED, result.raw, result.name)
    return checked_call(probe, result.name, result.input)
