"""Print results as tables or JSON on stdout, and messages and errors on stderr.

Untrusted text goes through `printable` or `one_line`, because a terminal obeys control characters.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from shutil import get_terminal_size
from textwrap import dedent
from typing import TYPE_CHECKING

from swe_rollout.cli.options import OutputFormat
from swe_rollout.errors import DatasetError, InternalError, SpecError, SweRolloutError
from swe_rollout.text.escaping import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

DOCS = "docs/troubleshooting.md"
_PIPE_COLUMNS = 240
_GAP = "  "


@cache
def stderr_console() -> Console:
    """Return the single console for stderr; sharing it puts messages above a live view."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """Print one message on stderr."""
    if stderr_console.cache_info().currsize:  # it may draw a live view
        from rich.text import Text

        stderr_console().print(Text(printable(text)))
    else:
        sys.stderr.write(printable(text) + "\n")


def write_data(value: object, output: OutputFormat = OutputFormat.JSON) -> None:
    """Print one value on stdout, as JSON or YAML."""
    if output is not OutputFormat.YAML:
        sys.stdout.write(json.dumps(value, indent=2) + "\n")
        return
    import yaml

    plain = json.loads(json.dumps(value))  # enumerations and tuples become plain values
    sys.stdout.write(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def write_log(data: bytes) -> None:
    """Print a log on stdout: verbatim to a file or pipe, with escapes on a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(printable(data.decode(errors="replace")))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)


def write_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout unchanged, and flush them."""
    sys.stdout.writelines(line + "\n" for line in lines)
    sys.stdout.flush()


def write_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    output: OutputFormat = OutputFormat.TABLE,
) -> None:
    """Print a plain table on stdout, or only the first column with `-o name`.

    Columns whose names end in `#` are numeric; those ending in `+` are shown by `-o wide`.
    """
    if output is OutputFormat.NAME:
        write_lines(one_line(row[0]) for row in rows)
        return
    shown = [i for i, name in enumerate(columns) if output is OutputFormat.WIDE or "+" not in name]
    heads = [columns[i].rstrip("#+") for i in shown]
    numeric = ["#" in columns[i] for i in shown]
    cells = [[one_line(row[i]) for i in shown] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    whole = sum(widths) + len(_GAP) * (len(widths) - 1)
    room = get_terminal_size().columns if sys.stdout.isatty() else _PIPE_COLUMNS
    if whole > room or not all(_is_narrow(cell) for row in cells for cell in row):
        _write_wrapped(heads, cells, numeric)
        return
    bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for at, row in enumerate([heads, *cells]):
        parts = zip(row, widths, numeric, strict=True)
        line = _GAP.join(cell.rjust(width) if n else cell.ljust(width) for cell, width, n in parts)
        sys.stdout.write(f"\x1b[1m{line}\x1b[0m\n" if bold and not at else f"{line}\n")


def _is_narrow(text: str) -> bool:
    """Whether each character takes one terminal column."""
    return text.isascii() or not any(
        unicodedata.east_asian_width(each) in "WF" or unicodedata.combining(each) for each in text
    )


def _write_wrapped(
    heads: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> None:
    """Print a table with wide characters or with cells that must be wrapped."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head, is_numeric in zip(heads, numeric, strict=True):
        table.add_column(head, justify="right" if is_numeric else "left", no_wrap=is_numeric)
    for row in cells:
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    # A pipe has no width, so nothing may be truncated there.
    wide = console if console.is_terminal else Console(highlight=False, width=_PIPE_COLUMNS)
    wide.print(table)


def show_error(error: SweRolloutError) -> None:
    """Print what, why and fix on stderr, after the problems of an input, one per line."""
    from rich.text import Text

    console = stderr_console()
    if isinstance(error, (SpecError, DatasetError)):
        for problem in error.problems:
            console.print(Text(printable(str(problem))))
    console.print(Text.assemble(("error", "bold red"), ": ", printable(error.what)))
    if error.why:
        console.print(_labelled("why", error.why))
    if error.trace:
        lines = [line for line in error.trace.splitlines() if line.startswith(" ")]
        console.print(_labelled("at", dedent("\n".join(lines))))
    if error.fix:
        console.print(_labelled("fix", error.fix))
    if isinstance(error, InternalError):
        console.print(_labelled("fix", "this is a bug in swe-rollout: report it with this message"))
    console.print(_labelled("docs", f"{DOCS}#{documented_class(type(error)).anchor()}"))


def documented_class(kind: type[SweRolloutError]) -> type[SweRolloutError]:
    """Return `kind` or its nearest public ancestor, which the troubleshooting page covers."""
    return next(
        each
        for each in kind.mro()
        if issubclass(each, SweRolloutError) and not each.__name__.startswith("_")
    )


def _labelled(label: str, text: str) -> Text:
    from rich.text import Text

    body = printable(text).replace("\n", "\n        ")
    return Text.assemble((f"  {label:<5} ", "dim"), body)
