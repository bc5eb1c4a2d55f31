"""Cards: small HTML for notebooks, of bounded size whatever a record contains.

Every text is escaped, and control characters are shown. There are no scripts, style sheets or
external resources; colours follow the notebook's theme, light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from swe_rollout.text.escaping import templates

ROWS: Final = 20
"""Maximum rows of a table to show; the others are only counted."""
FOLD_CHARS: Final = 4000


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below the facts of a card."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    """The rows, of which the first are shown."""
    total: int | None = None
    """The number of rows, if `rows` are not all of them."""

    @property
    def more(self) -> int:
        """The number of rows that are not shown."""
        total = len(self.rows) if self.total is None else self.total
        return total - min(len(self.rows), ROWS)


def card(
    title: str,
    facts: Mapping[str, str],
    *,
    table: Table | None = None,
    folds: Mapping[str, str] | None = None,
) -> str:
    """Return a card. Empty facts are left out; folds open with a click."""
    made = templates("swe_rollout.text").get_template("card.html")
    return made.render(
        title=title,
        facts={name: value for name, value in facts.items() if value},
        table=table,
        folds={name: _folded(text) for name, text in (folds or {}).items() if text},
        most_rows=ROWS,
    )


def _folded(text: str) -> str:
    more = len(text) - FOLD_CHARS
    return text[:FOLD_CHARS] + (f"\n… and {more:,} more characters" if more > 0 else "")
