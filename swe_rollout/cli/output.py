"""What the command line prints: results as tables or JSON, errors with their cure.

Text from outside goes through `visible` or `one_line`: a terminal obeys what it is sent.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from swe_rollout.errors import DatasetError, InternalError, SpecError, SweRolloutError
from swe_rollout.viewer.visible import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DOCS = "docs/troubleshooting.md"
_PIPE_COLUMNS = 240


@cache
def talk_console() -> Console:
    """Where people are talked to: stderr. One for all, so that lines go above a live view."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """One line to the person at the terminal."""
    talk_console().print(Text(visible(text)))


def write_json(value: object) -> None:
    """One JSON value on stdout."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def write_lines(lines: Iterable[str]) -> None:
    """Lines on stdout, as they are."""
    sys.stdout.writelines(line + "\n" for line in lines)


def write_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A plain table on stdout; columns whose name ends in `#` are numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        number = column.endswith("#")
        table.add_column(column.rstrip("#"), justify="right" if number else "left", no_wrap=number)
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    console = Console(highlight=False)
    # A pipe has no width: nothing may be cut there.
    wide = console if console.is_terminal else Console(highlight=False, width=_PIPE_COLUMNS)
    wide.print(table)


def number(value: float | None, *, digits: int = 2) -> str:
    """A figure for people, a dash when there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def show_error(error: SweRolloutError) -> None:
    """What, why and fix on stderr; the problems of an input first, one line each."""
    console = talk_console()
    if isinstance(error, (SpecError, DatasetError)):
        for problem in error.problems:
            console.print(Text(visible(str(problem))))
    console.print(Text.assemble(("error", "bold red"), ": ", visible(error.what)))
    if error.why:
        console.print(_labelled("why", error.why))
    if error.fix:
        console.print(_labelled("fix", error.fix))
    if isinstance(error, InternalError):
        console.print(_labelled("fix", "this is a bug in swe-rollout: report it with this message"))
    console.print(_labelled("docs", f"{DOCS}#{documented(type(error)).anchor()}"))


def documented(kind: type[SweRolloutError]) -> type[SweRolloutError]:
    """The class whose heading the troubleshooting page has: `kind`, or the public one above it."""
    return next(
        each
        for each in kind.mro()
        if issubclass(each, SweRolloutError) and not each.__name__.startswith("_")
    )


def _labelled(label: str, text: str) -> Text:
    body = visible(text).replace("\n", "\n        ")
    return Text.assemble((f"  {label:<5} ", "dim"), body)
