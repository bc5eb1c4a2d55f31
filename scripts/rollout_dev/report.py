"""Output of benchmarks and conformance: a table, or with `--json` one object as the last line.

    {"name", "rows": [{"subject", figures…}], "ratios": {…}, "ok": true|false, "notes": []}

Units are in the figures' names. A subject that cannot be measured here is a row with `skipped`,
which says how to install it.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog


@dataclass(frozen=True, slots=True)
class Row:
    """One subject and its figures."""

    subject: str
    figures: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    """Text that distinguishes rows of the same subject."""
    skipped: str = ""
    """How to install what is missing; empty if it was measured."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one program."""

    name: str
    rows: tuple[Row, ...]
    ok: bool
    ratios: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return one object on one line."""
        rows = [
            {
                "subject": row.subject,
                **row.labels,
                **({"skipped": row.skipped} if row.skipped else row.figures),
            }
            for row in self.rows
        ]
        return json.dumps(
            {
                "name": self.name,
                "rows": rows,
                "ratios": dict(self.ratios),
                "ok": self.ok,
                "notes": list(self.notes),
            }
        )

    def to_text(self) -> str:
        """Return a line for each row and ratio."""
        lines = [
            f"{row.subject:39} "
            + (row.skipped or "  ".join(f"{name} {value:g}" for name, value in row.figures.items()))
            for row in self.rows
        ]
        lines += [f"{name:40}{value:g}" for name, value in self.ratios.items()]
        return "\n".join([*lines, *self.notes, "ok" if self.ok else "NOT OK"])

    def printed(self, *, as_json: bool, text: str = "") -> int:
        """Print the object, or its text; return the exit status."""
        print(self.to_json() if as_json else text or self.to_text(), flush=True)
        return 0 if self.ok else 1


def parser(
    command: str, doc: str | None, *, quick: str = "", kubeconfig: bool = False
) -> argparse.ArgumentParser:
    """Return a parser with `--json`, and with `--quick` and `--kubeconfig` if asked for.

    The module's docstring is its help.
    """
    made = argparse.ArgumentParser(
        prog=command, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", action="store_true", help="print one object as the last line")
    if quick:
        made.add_argument("--quick", action="store_true", help=quick)
    if kubeconfig:
        made.add_argument("--kubeconfig", help="default: $KUBECONFIG, then ~/.kube/config")
    return made


def silence_logs() -> None:
    """Drop log events below critical: expected failures would fill the terminal."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
