"""The parsers of peers, behind the interface of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from peering.environment import is_there
from swe_rollout.agent.parsers.base import checked
from swe_rollout.tool_format import ToolFormat
from swe_rollout.trajectory import CallStatus, ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from swe_rollout.testing.parser_probes import Probe


class PeerParser(Protocol):
    """One peer's parsers."""

    name: str
    formats: frozenset[ToolFormat]

    def parse(self, probe: Probe) -> tuple[ToolCall, ...]:
        """What the peer makes of a probe, as calls of ours."""
        ...


class _StrandsResult(Protocol):
    name: str
    input: object
    raw: str | None


class _StrandsParser(Protocol):
    def parse(self, text: str) -> Sequence[_StrandsResult]: ...


@dataclass(frozen=True)
class Strands(PeerParser):
    """strands-sglang: it finds calls in text; arguments are checked later on."""

    name: str = "strands-sglang 0.4.3"
    formats: frozenset[ToolFormat] = frozenset(
        {
            ToolFormat.HERMES,
            ToolFormat.QWEN_XML,
            ToolFormat.GLM45,
            ToolFormat.GLM47,
            ToolFormat.KIMI_K2,
        }
    )

    def parse(self, probe: Probe) -> tuple[ToolCall, ...]:
        """Its results; a call it would run is held against the schema as its caller does."""
        from strands_sglang.tool_parsers import get_tool_parser  # noqa: PLC0415 - a peer

        names = {ToolFormat.GLM45: "glm", ToolFormat.GLM47: "glm"}
        parser = cast(
            "_StrandsParser", get_tool_parser(names.get(probe.tool_format, probe.tool_format.value))
        )
        return tuple(_call(each, probe) for each in parser.parse(probe.without_stop()))


def _call(result: _StrandsResult, probe: Probe) -> ToolCall:
    if result.raw is not None:
        return ToolCall(CallStatus.MALFORMED, result.raw, result.name)
    given = result.input
    arguments: Mapping[str, object] = given if isinstance(given, dict) else {}
    return checked(result.name, arguments, tools=probe.tools, raw="")


def right(probe: Probe, calls: Sequence[ToolCall]) -> bool:
    """Whether a peer runs just what should run, and tells of what should not.

    Peers have other statuses, or none: any word that something is wrong counts.
    """
    wanted = [(e.name, e.arguments) for e in probe.expect if e.status is CallStatus.OK]
    run = [(c.name, c.arguments) for c in calls if c.status is CallStatus.OK]
    refusals = any(e.status is not CallStatus.OK for e in probe.expect)
    told = any(c.status is not CallStatus.OK for c in calls)
    return repr(wanted) == repr(run) and refusals == told


def parsers() -> tuple[PeerParser, ...]:
    """The peers whose parsers can be imported here."""
    return (Strands(),) if is_there("strands_sglang") else ()
