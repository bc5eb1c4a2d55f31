"""The truth table of tool-call parsers: every probe, on us and on peers. Run by `parsers.py`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from bench.report import Report, Row
from peering import environment
from peering.parsing import PeerParser, parsers, right
from swe_rollout.agent.encoding import Encoding
from swe_rollout.errors import SweRolloutError
from swe_rollout.testing import parser_probes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swe_rollout.agent.parsers.base import SampledText
    from swe_rollout.testing.parser_probes import Probe
    from swe_rollout.trajectory import ToolCall


@dataclass(frozen=True, slots=True)
class Answer:
    """What one subject said of one probe."""

    subject: str
    probe: Probe
    right: bool
    found: tuple[ToolCall, ...]
    error: str = ""


def main() -> int:
    """The exit code."""
    parsed = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parsed.add_argument("--json", action="store_true", help="one object as the last line")
    parsed.add_argument("--probes", action="append", type=Path, default=[], metavar="FILE")
    parsed.add_argument("--no-peers", action="store_true", help="only us")
    parsed.add_argument("--verbose", action="store_true", help="tell of each wrong answer")
    given = parsed.parse_args()
    try:
        probes = [
            p for file in given.probes or [parser_probes.OWN] for p in parser_probes.load(file)
        ]
        answers = [_ours(probe) for probe in probes]
    except SweRolloutError as error:
        sys.stderr.write(f"error: {error}\n  fix  {error.fix}\n")
        return 2
    peers = () if given.no_peers else parsers()
    answers += [_theirs(peer, p) for peer in peers for p in probes if p.tool_format in peer.formats]
    wrong = [answer for answer in answers if not answer.right]
    for answer in wrong:
        if given.verbose or answer.subject == OURS:
            sys.stderr.write(f"{answer.subject}: {answer.probe.name}: {_said(answer)}\n")
    report = _report(answers, skipped=not peers and not given.no_peers)
    sys.stdout.write((report.to_json() if given.json else _table(answers)) + "\n")
    return 0 if report.ok else 1


OURS = "swe-rollout"


def _ours(probe: Probe) -> Answer:
    calls = parser_probes.run(probe, _sampled(probe))
    return Answer(OURS, probe, probe.passes(calls), calls)


def _sampled(probe: Probe) -> SampledText | None:
    """The ids of a probe as its tokenizer reads them; a stop token at the end is cut."""
    if probe.tokenizer is None:
        return None
    path = Path(probe.tokenizer)
    file = path / "tokenizer.json" if path.is_dir() else path
    encoding = Encoding(Tokenizer.from_file(str(file)))
    ids = list(probe.ids)
    if ids and encoding.controls.get(ids[-1]) in parser_probes.STOPS:
        ids.pop()
    return encoding.sampled(ids)


def _theirs(peer: PeerParser, probe: Probe) -> Answer:
    try:
        calls = peer.parse(probe)
    except Exception as error:  # noqa: BLE001 - a peer that breaks is a wrong answer, not an end
        return Answer(peer.name, probe, False, (), f"{type(error).__name__}: {error}")  # noqa: FBT003
    return Answer(peer.name, probe, right(probe, calls), calls)


def _said(answer: Answer) -> str:
    found = [f"{c.status.value} {c.name} {c.arguments}" for c in answer.found]
    wanted = [f"{e.status.value} {e.name or ''}" for e in answer.probe.expect]
    return answer.error or f"expected {wanted}, found {found}"


def _report(answers: Sequence[Answer], *, skipped: bool) -> Report:
    rows = []
    for subject in dict.fromkeys(answer.subject for answer in answers):
        own = [answer for answer in answers if answer.subject == subject]
        per_format = {f"{name}_right": n for name, n in _count(own).items()}
        figures = {"right": sum(a.right for a in own), "of": len(own)}
        rows.append(Row(subject, {**figures, **per_format}))
    if skipped:
        rows.append(Row("strands-sglang", skipped=environment.HOW))
    ours = [answer for answer in answers if answer.subject == OURS]
    ratios = {
        f"{row.subject.split()[0]}_share_right": row.figures["right"] / max(row.figures["of"], 1)
        for row in rows
        if row.figures
    }
    notes = ("a peer is asked in the formats it has; any word that a call is wrong counts",)
    return Report("parsers", tuple(rows), all(a.right for a in ours), ratios, notes)


def _count(answers: Sequence[Answer]) -> Counter[str]:
    counts = Counter({answer.probe.tool_format.value: 0 for answer in answers})
    counts.update(answer.probe.tool_format.value for answer in answers if answer.right)
    return counts


def _table(answers: Sequence[Answer]) -> str:
    subjects = list(dict.fromkeys(answer.subject for answer in answers))
    formats = list(dict.fromkeys(answer.probe.tool_format.value for answer in answers))
    lines = [f"| format | {' | '.join(subjects)} |", "|---|" + "---|" * len(subjects)]
    for name in [*formats, "all"]:
        cells = []
        for subject in subjects:
            own = [
                answer
                for answer in answers
                if answer.subject == subject and name in ("all", answer.probe.tool_format.value)
            ]
            cells.append(f"{sum(a.right for a in own)} of {len(own)}" if own else "–")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
