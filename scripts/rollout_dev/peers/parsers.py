"""Peers' tool-call parsers behind one interface, and which of them are installed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, cast

import yaml

from rollout_dev.parser_probes.probes import ParserProbe
from rollout_dev.peers.environment import HOW, ROOT, is_installed
from swe_rollout.agent.parsers.base import checked
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall

_HEADER: Final = "<|start|>"
TABLES: Final = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
"""Each peer's parsers by call format."""


@dataclass(frozen=True, slots=True)
class PeerCalls:
    """The calls that a peer found in one probe."""

    calls: tuple[ToolCall, ...]
    error: str = ""
    """The exception that the peer raised; empty if none."""


class PeerParser(Protocol):
    """The parsers of one peer."""

    name: str
    formats: frozenset[ToolFormat]

    def parse(self, probes: Sequence[ParserProbe]) -> Sequence[PeerCalls]:
        """Parse probes in formats that the peer supports; return one result each."""
        ...


def parse_each(
    parse: Callable[[ParserProbe], Sequence[ToolCall]], probes: Sequence[ParserProbe]
) -> list[PeerCalls]:
    """Parse the probes one after another."""
    found = []
    for probe in probes:
        try:
            found.append(PeerCalls(tuple(parse(probe))))
        except Exception as error:  # noqa: BLE001 - a peer that breaks is one wrong result
            found.append(PeerCalls((), f"{type(error).__name__}: {error}"))
    return found


def with_header(probe: ParserProbe, text: str) -> str:
    """Prepend the end of the prompt if a peer looks for calls in both (harmony)."""
    is_prefixed = probe.tool_format is ToolFormat.HARMONY and not text.startswith(_HEADER)
    return f"{_HEADER}assistant{text}" if is_prefixed else text


def checked_call(probe: ParserProbe, name: str, arguments: object) -> ToolCall:
    """Check a call that a peer would run against the schema, as the peer's caller does."""
    given: Mapping[str, object] = arguments if isinstance(arguments, dict) else {}
    return checked(name, given, tools=probe.tools, raw="")


def agrees(probe: ParserProbe, calls: Sequence[ToolCall]) -> bool:
    """Whether a peer runs exactly the calls that should run, and reports the others.

    Peers have other statuses, or none: any report of a problem counts.
    """
    wanted = [_text(e.name, e.arguments) for e in probe.expect if e.runs]
    run = [_text(c.name, c.arguments) for c in calls if c.status is CallStatus.OK]
    refusals = any(not e.runs for e in probe.expect)
    reported = any(c.status is not CallStatus.OK for c in calls)
    return wanted == run and refusals == reported


def _text(name: str | None, arguments: object) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True)}"


_PYTHON: Final = ROOT / ".sglang" / "venv" / "bin" / "python"
_CHILD: Final = Path(__file__).with_name("sglang_child.py")


class Sglang(PeerParser):
    """SGLang, which splits off the reasoning first, as its server does, then looks for calls."""

    name = "sglang 0.5.23"
    formats = frozenset(map(ToolFormat, TABLES["sglang"]))

    def parse(self, probes: Sequence[ParserProbe]) -> Sequence[PeerCalls]:
        # Use one process for all of them: it takes seconds to start.
        requests = [
            {
                "parser": TABLES["sglang"][probe.tool_format],
                "tools": [tool.function() for tool in probe.tools],
                "text": with_header(probe, probe.sampled().text),
                "opened": probe.reasoning.opened,
            }
            for probe in probes
        ]
        command = [_PYTHON, _CHILD]
        done = subprocess.run(
            command, input=json.dumps(requests), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            why = done.stderr.strip().splitlines()[-1:]
            return [PeerCalls((), f"its process ended with {done.returncode}: {why}")] * len(probes)
        found = json.loads(done.stdout.splitlines()[-1])
        return [_calls(probe, each) for probe, each in zip(probes, found, strict=True)]


def _calls(probe: ParserProbe, found: dict[str, object]) -> PeerCalls:
    match found:
        case {"error": str(error)}:
            return PeerCalls((), error)
        case {"calls": list(calls)}:
            return PeerCalls(tuple(checked_call(probe, c["name"], c["arguments"]) for c in calls))
        case _:
            raise ValueError(f"unexpected output of SGLang's process: {found}")


def sglang_is_installed() -> bool:
    """Whether SGLang was installed for its CPU server."""
    return _PYTHON.exists()


class _StrandsResult(Protocol):
    name: str
    input: object
    raw: str | None


class _StrandsParser(Protocol):
    def parse(self, text: str) -> Sequence[_StrandsResult]: ...


class Strands(PeerParser):
    """The parser of strands-sglang."""

    name = "strands-sglang 0.4.3"
    formats = frozenset(map(ToolFormat, TABLES["strands"]))

    def parse(self, probes: Sequence[ParserProbe]) -> Sequence[PeerCalls]:
        return parse_each(self._parse, probes)

    def _parse(self, probe: ParserProbe) -> list[ToolCall]:
        from strands_sglang.tool_parsers import get_tool_parser  # noqa: PLC0415 - a peer

        parser = cast("_StrandsParser", get_tool_parser(TABLES["strands"][probe.tool_format]))
        return [_strands_call(found, probe) for found in parser.parse(probe.sampled().text)]


def _strands_call(result: _StrandsResult, probe: ParserProbe) -> ToolCall:
    if result.raw is not None:
        return ToolCall(CallStatus.MALFORMED, result.raw, result.name)
    return checked_call(probe, result.name, result.input)


def installed_peers() -> tuple[PeerParser, ...]:
    """Return the peers whose parsers can be run here."""
    return tuple(peer for peer, is_there, _ in _peers() if is_there)


def absent_peers() -> dict[str, str]:
    """Return how to install each of the missing peers, by name."""
    absent = {peer.name: how for peer, is_there, how in _peers() if not is_there}
    if not is_installed("ray"):
        absent["verl"] = "its parsers import ray, which scripts/peers leaves out"
    return absent


def _peers() -> tuple[tuple[PeerParser, bool, str], ...]:
    from rollout_dev.peers.renderers_calls import Renderers  # noqa: PLC0415 - it imports this

    return (
        (Strands(), is_installed("strands_sglang"), HOW),
        (Renderers(), is_installed("renderers"), HOW),
        (Sglang(), sglang_is_installed(), "run scripts/sglang-cpu setup"),
    )
