"""The interface of peers' tool-call parsers. `parsers` lists them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rollout_dev.parser_probes.probes import ParserProbe
from swe_rollout.agent.parsers.base import checked
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall

_HEADER: Final = "<|start|>"


@dataclass(frozen=True, slots=True)
class PeerCalls:
    """The calls that a peer found in one probe."""

    calls: tuple[ToolCall, ...]
    error: str = ""
    """The exception that it raised; empty if none."""


class PeerParser(Protocol):
    """The parsers of one peer."""

    name: str
    formats: frozenset[ToolFormat]

    def parse(self, probes: Sequence[ParserProbe]) -> Sequence[PeerCalls]:
        """Parse probes in formats that the peer has; one result for each."""
        ...


def parse_each(
    parse: Callable[[ParserProbe], Sequence[ToolCall]], probes: Sequence[ParserProbe]
) -> list[PeerCalls]:
    """Parse one probe after the other."""
    found = []
    for probe in probes:
        try:
            found.append(PeerCalls(tuple(parse(probe))))
        except Exception as error:  # noqa: BLE001 - a peer that breaks is one wrong result
            found.append(PeerCalls((), f"{type(error).__name__}: {error}"))
    return found


def with_header(probe: ParserProbe, text: str) -> str:
    """Prepend the end of the prompt where a peer looks for calls in both (harmony)."""
    is_prefixed = probe.tool_format is ToolFormat.HARMONY and not text.startswith(_HEADER)
    return f"{_HEADER}assistant{text}" if is_prefixed else text


def checked_call(probe: ParserProbe, name: str, arguments: object) -> ToolCall:
    """Check a call that a peer would run against the schema, as the peer's caller does."""
    given: Mapping[str, object] = arguments if isinstance(arguments, dict) else {}
    return checked(name, given, tools=probe.tools, raw="")


def agrees(probe: ParserProbe, calls: Sequence[ToolCall]) -> bool:
    """Whether a peer runs exactly the calls that should run, and reports the others.

    Peers have other statuses, or none: any report that something is wrong counts.
    """
    wanted = [_text(e.name, e.arguments) for e in probe.expect if e.runs]
    run = [_text(c.name, c.arguments) for c in calls if c.status is CallStatus.OK]
    refusals = any(not e.runs for e in probe.expect)
    reported = any(c.status is not CallStatus.OK for c in calls)
    return wanted == run and refusals == reported


def _text(name: str | None, arguments: object) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True)}"
