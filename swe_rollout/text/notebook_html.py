"""Cards: small HTML for notebooks, of bounded size whatever a record contains.

Every text is escaped, and control characters are shown. There are no scripts, style sheets or
external resources; colours follow the notebook's theme, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from swe_rollout.text.escaping import escaped, one_line

ROWS: Final = 20
"""Maximum rows of a table to show; the others are only counted."""
CELL_CHARS: Final = 200
FOLD_CHARS: Final = 4000
_LINE: Final = "1px solid rgba(128,128,128,.35)"
_BOX: Final = (
    f"border:{_LINE};border-radius:6px;padding:.6em .8em;margin:.3em 0;max-width:60em;"
    "overflow-x:auto;font-size:.92em;line-height:1.45"
)
_CELL: Final = "text-align:left;padding:.1em .9em .1em 0;vertical-align:top"
_DIM: Final = "opacity:.65"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below the facts of a card."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    """The rows, of which the first are shown."""
    total: int | None = None
    """The number of rows, if `rows` are not all of them."""


def card(
    title: str,
    facts: Mapping[str, str],
    *,
    table: Table | None = None,
    folds: Mapping[str, str] | None = None,
) -> str:
    """Return a card. Empty facts are left out; folds open with a click."""
    parts = [f'<div style="{_BOX}"><div><b>{_text(title)}</b></div>']
    shown = {name: value for name, value in facts.items() if value}
    if shown:
        rows = ((_cell(name, dim=True), _cell(value)) for name, value in shown.items())
        parts.append(_rows("".join(row) for row in rows))
    if table is not None and table.rows:
        parts.append(_table(table))
    parts += [_fold(name, text) for name, text in (folds or {}).items() if text]
    return "".join((*parts, "</div>"))


def _table(table: Table) -> str:
    heads = "".join(f'<th style="{_CELL};{_DIM}">{_text(each)}</th>' for each in table.columns)
    rows = ("".join(map(_cell, row)) for row in table.rows[:ROWS])
    total = len(table.rows) if table.total is None else table.total
    more = total - min(len(table.rows), ROWS)
    left = f'<div style="{_DIM}">… and {more:,} more</div>' if more > 0 else ""
    return f'<div style="border-top:{_LINE};margin-top:.4em"></div>{_rows([heads, *rows])}{left}'


def _rows(rows: Iterable[str]) -> str:
    inside = "".join(f'<tr style="background:none">{row}</tr>' for row in rows)
    return f'<table style="border-collapse:collapse;margin:.2em 0">{inside}</table>'


def _cell(value: str, *, dim: bool = False) -> str:
    style = f"{_CELL};{_DIM};white-space:nowrap" if dim else _CELL
    return f'<td style="{style}">{_text(value)}</td>'


def _fold(name: str, text: str) -> str:
    more = len(text) - FOLD_CHARS
    shown = text[:FOLD_CHARS] + (f"\n… and {more:,} more characters" if more > 0 else "")
    body = f'<pre style="white-space:pre-wrap;max-height:24em;overflow:auto">{escaped(shown)}</pre>'
    return f'<details><summary style="cursor:pointer">{_text(name)}</summary>{body}</details>'


def _text(value: str) -> str:
    return escaped(one_line(value, limit=CELL_CHARS))
