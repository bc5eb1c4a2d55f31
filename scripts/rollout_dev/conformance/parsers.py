"""The truth table of tool-call parsers: every probe, with our parsers and with peers'.

Exits with 1 if ours gets a probe wrong. docs/reference/parsers.md describes the form of external
probes, which `--probes` runs instead of the built-in ones.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rollout_dev.dev_cluster.errors import ScriptError
from rollout_dev.parser_probes.probe_files import load_probes
from rollout_dev.parser_probes.probes import ParserProbe, run_probe
from rollout_dev.peers.parsers import PeerParser, absent_peers, agrees, installed_peers
from rollout_dev.report import Report, Row, option, program, table
from swe_rollout.errors import SweRolloutError
from swe_rollout.types.turn import ToolCall


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The calls that one subject found in one probe."""

    subject: str
    probe: ParserProbe
    right: bool
    found: tuple[ToolCall, ...]
    error: str = ""


@program(
    option("--probes", action="extend", nargs="+", type=Path, default=[], metavar="FILE"),
    option("--no-peers", action="store_true", help="only ours"),
    option("--verbose", action="store_true", help="print each wrong result"),
    shows_logs=True,
)
def main(given: Namespace) -> Report:
    """Run the probes; all our own results have to be right."""
    try:
        probes = load_probes(*given.probes or ())
        results = [_ours(probe) for probe in probes]
    except SweRolloutError as error:
        raise ScriptError(f"error: {error}", fix=error.fix, exit_code=2) from error
    peers, absent = ((), ()) if given.no_peers else (installed_peers(), _absent_rows())
    for peer in peers:
        results += _theirs(peer, [p for p in probes if p.tool_format in peer.formats])
    for result in results:
        if not result.right and (given.verbose or result.subject == OURS):
            sys.stderr.write(f"{result.subject}: {result.probe.name}: {_described(result)}\n")
    return _report(results, absent)


OURS = "swe-rollout"


def _absent_rows() -> tuple[Row, ...]:
    return tuple(Row(name, skipped=how) for name, how in absent_peers().items())


def _ours(probe: ParserProbe) -> ProbeResult:
    calls = run_probe(probe)
    return ProbeResult(OURS, probe, probe.passes(calls), calls)


def _theirs(peer: PeerParser, probes: Sequence[ParserProbe]) -> list[ProbeResult]:
    return [
        ProbeResult(peer.name, probe, not reply.error and agrees(probe, reply.calls), reply.calls,
               reply.error)
        for probe, reply in zip(probes, peer.parse(probes), strict=True)
    ]  # fmt: skip


def _described(result: ProbeResult) -> str:
    found = [f"{c.status.value} {c.name} {c.arguments}" for c in result.found]
    wanted = [f"{'/'.join(e.statuses)} {e.name or ''}" for e in result.probe.expect]
    return result.error or f"expected {wanted}, found {found}"


def _report(results: Sequence[ProbeResult], absent: Sequence[Row]) -> Report:
    rows = []
    for subject in dict.fromkeys(result.subject for result in results):
        own = [result for result in results if result.subject == subject]
        figures = {"right": sum(a.right for a in own), "of": len(own)}
        of = Counter(result.probe.tool_format.value for result in own)
        per_format = {f"{name}_of": n for name, n in of.items()}
        right_in = {f"{name}_right": n for name, n in _count(own).items()}
        rows.append(Row(subject, {**figures, **right_in, **per_format}))
    ours = [result for result in results if result.subject == OURS]
    ratios = {
        f"{row.subject.split()[0]}_share_right": row.figures["right"] / max(row.figures["of"], 1)
        for row in rows
    }
    notes = ("a peer gets the formats that it supports; any report of a wrong call counts",)
    ok = all(result.right for result in ours)
    text = _table(results, absent)
    return Report("parsers", (*rows, *absent), ok, ratios, notes, text)


def _count(results: Sequence[ProbeResult]) -> Counter[str]:
    counts = Counter({result.probe.tool_format.value: 0 for result in results})
    counts.update(result.probe.tool_format.value for result in results if result.right)
    return counts


def _table(results: Sequence[ProbeResult], absent: Sequence[Row]) -> str:
    subjects = list(dict.fromkeys(result.subject for result in results))
    formats = list(dict.fromkeys(result.probe.tool_format.value for result in results))
    rows = []
    for name in [*formats, "all"]:
        cells = []
        for subject in subjects:
            own = [
                result
                for result in results
                if result.subject == subject and name in ("all", result.probe.tool_format.value)
            ]
            cells.append(f"{sum(a.right for a in own)} of {len(own)}" if own else "–")
        rows.append((name, *cells))
    lines = table(("format", *subjects), rows)
    return "\n".join([*lines, *(f"{row.subject}: {row.skipped}" for row in absent)])
