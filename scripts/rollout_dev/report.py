"""Output of benchmarks and conformance: a table, or with `--json` one object as the last line.

    {"name", "rows": [{"subject", figures…}], "ratios": {…}, "ok": true|false, "notes": []}

Units are in the figures' names. A subject that cannot be measured here is a row with `skipped`,
which says how to install it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import structlog

from rollout_dev.dev_cluster.errors import ScriptError
from swe_rollout.errors import SweRolloutError


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
    text: str = ""
    """What people read in place of the rows."""

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

    def printed(self, *, as_json: bool) -> int:
        """Print the object, or its text; return the exit status."""
        print(self.to_json() if as_json else self.text or self.to_text(), flush=True)
        return 0 if self.ok else 1


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, and an empty one."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |"
    yield ""


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


def option(*names: str, **settings: Any) -> _Option:
    """Return an option of a program, with the arguments of `add_argument`."""
    return names, settings


_Option: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]
_Measure: TypeAlias = Callable[[argparse.Namespace], Report | Coroutine[object, object, Report]]
_Program: TypeAlias = Callable[[Sequence[str]], int]


def program(
    *options: _Option, quick: str = "", kubeconfig: bool = False, shows_logs: bool = False
) -> Callable[[_Measure], _Program]:
    """Make a program of a function that returns a report: one that takes arguments and prints.

    It returns the exit status; a coroutine leaves the process, because clients may hang in threads.
    `given.error` ends it like a wrong option. Without `shows_logs`, log events below critical are
    dropped: expected failures would fill the terminal.
    """

    def of(measure: _Measure) -> _Program:
        def main(arguments: Sequence[str]) -> int:
            command = " ".join(measure.__module__.split(".")[1:])
            doc = sys.modules[measure.__module__].__doc__
            made = parser(f"scripts/{command}", doc, quick=quick, kubeconfig=kubeconfig)
            for names, settings in options:
                made.add_argument(*names, **settings)
            made.set_defaults(error=made.error)
            given = made.parse_args(arguments)
            if not shows_logs:
                silence_logs()
            try:
                report = measure(given)
            except (ScriptError, SweRolloutError) as error:
                sys.stderr.write(f"{error}\n")
                return error.exit_code
            if isinstance(report, Coroutine):
                _run_and_leave(report, as_json=given.json)
            return report.printed(as_json=given.json)

        return main

    return of


def _run_and_leave(work: Coroutine[object, object, Report], *, as_json: bool) -> NoReturn:
    """Run `work`, print, and end the process, whatever threads still hang.

    SIGINT and SIGTERM cancel the work, so that it can clean up.
    """
    try:
        code = asyncio.run(_cancelled_by_sigterm(work)).printed(as_json=as_json)
    except (ScriptError, SweRolloutError) as error:
        sys.stderr.write(f"{error}\n")
        code = error.exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = 130
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _cancelled_by_sigterm(work: Coroutine[object, object, Report]) -> Report:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


def silence_logs() -> None:
    """Drop log events below critical: expected failures would fill the terminal."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
