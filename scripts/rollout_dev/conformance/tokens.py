"""Token exactness: every family and any tokenizer, with our token path and with peers'.

Counts prefix breaks, forged control ids, and the share of sampled tokens that a trainer still gets
if 0, 0.2, 1 or 10 % of them are segmented differently than the tokenizer would. Exits with 1 if
one of our own figures or checks is wrong.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rollout_dev.conformance.token_rows import OURS, Model, rows_of
from rollout_dev.families import FAMILIES, write
from rollout_dev.peers.tokens import FLOOR, keepers
from rollout_dev.report import Report, Row, option, program
from swe_rollout.testing.tokens.model import trained_share_key
from swe_rollout.testing.tokens.subjects import NOISE_LEVELS

_SHARES = tuple(map(trained_share_key, NOISE_LEVELS))
_COLUMNS = ("prefix_breaks", "forged_ids", *_SHARES, "turns")
_SHARE_NOTE = (
    "trained share: of all sampled tokens, those that are still in the next request, bit for bit; "
    "by the percentage of them that is spelled differently than the tokenizer spells them"
)
_COUNT_NOTE = (
    "prefix breaks and turns: over all patterns and noises; forged ids: control tokens in requests "
    "that no template wrote, with every control token put into the task and into a result"
)


@program(
    option(
        "--tokenizer",
        action="extend",
        nargs="+",
        default=[],
        metavar="PATH",
        help="folders with tokenizer.json and a chat template; instead of the built-in families",
    ),
    option("--families", action="store_true", help="the built-in families as well"),
    option("--no-peers", action="store_true", help="only ours"),
    quick="random parts once, not five times",
    shows_logs=True,
)
def main(given: Namespace) -> Report:
    """Run all checks; all our own rows have to be right."""
    # Peers and transformers warn about missing optional packages.
    logging.disable(logging.WARNING)
    began = time.monotonic()
    subjects = () if given.no_peers else [each for each in keepers() if each.name != FLOOR]
    with tempfile.TemporaryDirectory() as folder:
        rows: list[Row] = []
        for model in _models(given.tokenizer, Path(folder), families=given.families):
            for row in rows_of(model, subjects, quick=given.quick):
                rows.append(row)
                _report_progress(row)
    took = f"took {time.monotonic() - began:.0f} s"
    report = Report(
        "tokens", tuple(rows), _is_right(rows), _ratios(rows), (_SHARE_NOTE, _COUNT_NOTE, took)
    )
    return replace(report, text=_table(report))


def _models(paths: Sequence[str], folder: Path, *, families: bool) -> Iterator[Model]:
    for path in paths:
        yield Model(path, path)
    if families or not paths:
        for name in FAMILIES:
            yield Model(name, str(write(name, folder / name)))


def _report_progress(row: Row) -> None:
    model = row.labels.get("tokenizer", "")
    wrong = row.labels.get("refused") or row.labels.get("problems") or row.skipped
    sys.stderr.write(f"{model}: {row.subject}{': ' + wrong if wrong else ''}\n")


def _is_right(rows: Sequence[Row]) -> bool:
    ours = [row for row in rows if row.subject == OURS]
    return bool(ours) and all(_row_is_right(row) for row in ours)


def _row_is_right(row: Row) -> bool:
    """Return whether nothing broke or was forged, all is trained, and every check passed."""
    zeros = ("prefix_breaks", "forged_ids", "conversations_failed", "checks_failed")
    return (
        not row.labels.get("refused")
        and all(row.figures.get(name) == 0 for name in zeros)
        and all(row.figures.get(name) == 1 for name in _SHARES)
    )


def _ratios(rows: Sequence[Row]) -> dict[str, float]:
    """Return the ratio of our trained share to each peer's, at most noise, over shared models."""
    ratios: dict[str, float] = {}
    most = _SHARES[-1]
    ours = {row.labels["tokenizer"]: row.figures for row in rows if row.subject == OURS}
    for subject in dict.fromkeys(row.subject for row in rows if row.subject != OURS):
        theirs = [row for row in rows if row.subject == subject and row.figures]
        share = sum(row.figures[most] for row in theirs)
        if share:
            own = sum(ours[row.labels["tokenizer"]][most] for row in theirs)
            ratios[f"{most}_ours_to_{subject.split()[0]}"] = own / share
    return ratios


def _table(report: Report) -> str:
    head = ("tokenizer", "family", "subject", *_COLUMNS)
    lines = [f"| {' | '.join(head)} |", "|---|---|---|" + "---:|" * len(_COLUMNS)]
    for row in report.rows:
        labels = (row.labels.get("tokenizer", ""), row.labels.get("family", "–"), row.subject)
        cells = [_cell(row, name) for name in _COLUMNS]
        lines.append(f"| {' | '.join((*labels, *cells))} |")
    wrong = [
        f"- {row.labels.get('tokenizer')}, {row.subject}: {_problem(row)}"
        for row in report.rows
        if _problem(row)
    ]
    ratios = [f"- {name}: {value:.2f}" for name, value in report.ratios.items()]
    notes = [f"- {note}" for note in report.notes]
    return "\n".join([*lines, "", *wrong, *ratios, *notes, "", "ok" if report.ok else "NOT OK"])


def _problem(row: Row) -> str:
    return row.labels.get("refused") or row.labels.get("problems") or row.skipped


def _cell(row: Row, name: str) -> str:
    if row.skipped or name not in row.figures:
        return "n/a"
    value = row.figures[name]
    return f"{value * 100:.1f} %" if name in _SHARES else f"{value:g}"
