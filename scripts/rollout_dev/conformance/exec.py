"""How exec clients handle faults and awkward commands: a table, every cell measured by running it.

Works on any cluster with any image that has a POSIX /bin/sh; the kubeconfig only needs the right to
create, exec into and delete pods. Exits with 1 if one of our own cells is wrong.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from rollout_dev.conformance import exec_commands as commands
from rollout_dev.conformance import exec_faults as faults
from rollout_dev.conformance.exec_scene import Cell, Mark, Needs, Scene, Stage, open_stage, wrong
from rollout_dev.exec_clients import catalog, ours
from rollout_dev.exec_clients.catalog import Peer
from rollout_dev.report import Report, Row, option, program, table


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    name: str
    judge: Callable[[Scene], Awaitable[Cell]]
    needs: Needs = Needs.POD


ALL = (
    Case("binary output", commands.binary_output),
    Case("split UTF-8", commands.split_utf8),
    Case("CRLF and colours", commands.crlf),
    Case("exit codes", commands.exit_codes),
    Case("a missing program", commands.missing_program),
    Case("stderr apart", commands.stderr_apart),
    Case("20 MB of output", commands.large_output),
    Case("stdin to its end", commands.stdin_to_its_end),
    Case("stdin nobody reads", commands.stdin_nobody_reads),
    Case("background child", commands.background_child),
    Case("deadline ends the group", commands.deadline),
    Case("concurrent commands", commands.concurrent),
    Case("awkward names", commands.awkward_names),
    Case("InternalError status", faults.internal_error, Needs.PROXY),
    Case("no status", faults.no_status, Needs.PROXY),
    Case("no end", faults.no_end, Needs.PROXY),
    Case("reset in a command", faults.dropped_by_reset, Needs.PROXY),
    Case("end in a command", faults.dropped_in_order, Needs.PROXY),
    Case("reset in a response", faults.dropped_in_the_response, Needs.PROXY),
    Case("server unavailable", faults.server_unavailable, Needs.PROXY),
    Case("half-open", faults.half_open, Needs.PROXY),
    Case("corrupt frame", faults.corrupt_frame, Needs.PROXY),
    Case("split frames", faults.split_frames, Needs.PROXY),
    Case("fragmented frames", faults.fragmented_frames, Needs.PROXY),
    Case("strange channels", faults.strange_channels, Needs.PROXY),
    Case("reader that stops", faults.reader_that_stops, Needs.PROXY),
    Case("pod deleted", faults.pod_deleted, Needs.OWN_POD),
    Case("everything killed", faults.everything_killed, Needs.OWN_POD),
    Case("out of memory", faults.out_of_memory, Needs.OWN_POD),
)


IMAGE = "swe-rollout/sandbox-base:local"
LONGEST_S = 60.0
"""A client that takes longer for a case counts as hung."""
_OURS_S = 150.0
"""The same limit for our client, which reconnects and so may take longer."""


@dataclass(frozen=True, slots=True)
class Column:
    """The cells of one client."""

    client: str
    cells: dict[str, Cell]
    skipped: str = ""


@program(
    option("--image", default=IMAGE, help="of the pods; needs a POSIX /bin/sh"),
    option("--no-peers", action="store_true", help="only ours"),
    option("--case", action="append", default=[], help="only this one; repeatable"),
    kubeconfig=True,
)
async def main(given: Namespace) -> Report:
    """Run the cases; all our own cells have to be right."""
    cases = [case for case in ALL if not given.case or case.name in given.case]
    peers = () if given.no_peers else catalog.peers()
    async with open_stage(given.kubeconfig, given.image) as stage:
        columns = await asyncio.gather(
            _column(stage, None, cases),
            *(_column(stage, peer, cases) for peer in peers if not peer.missing),
        )
        missing = [Column(peer.name, {}, peer.missing) for peer in peers if peer.missing]
        columns += missing
    return replace(_report(columns, stage.notes), text=_table(columns, cases, stage.notes))


async def _column(stage: Stage, peer: Peer | None, cases: Sequence[Case]) -> Column:
    name = peer.name if peer else ours.NAME
    cells = {}
    for case in cases:
        cell = await _cell(stage, peer, case)
        cells[case.name] = cell
        sys.stderr.write(f"{name}: {case.name}: {cell.mark} {cell.detail}\n")
    return Column(name, cells)


async def _cell(stage: Stage, peer: Peer | None, case: Case) -> Cell:
    """Run one case with one client; any failure around it counts against the client."""
    longest_s = LONGEST_S if peer else _OURS_S

    async def judged() -> Cell:
        async with asyncio.timeout(longest_s), AsyncExitStack() as stack:
            scene = await stage.scene(peer, case.needs, stack)
            return await case.judge(scene)

    (found,) = await asyncio.gather(judged(), return_exceptions=True)
    if isinstance(found, Cell):
        return found
    if isinstance(found, TimeoutError):
        return wrong(f"no end within {longest_s:g} s")
    return wrong(f"{type(found).__name__}: {found}")


def _report(columns: Sequence[Column], notes: Sequence[str]) -> Report:
    rows, details = [], []
    for column in columns:
        if column.skipped:
            rows.append(Row(column.client, skipped=column.skipped))
            continue
        counts = Counter(cell.mark for cell in column.cells.values())
        figures = {
            "right": counts[Mark.RIGHT],
            "wrong": counts[Mark.WRONG],
            "na": counts[Mark.NONE],
        }
        cells = {name.replace(" ", "_"): cell.mark.value for name, cell in column.cells.items()}
        rows.append(Row(column.client, figures, cells))
        details += [
            f"{column.client}: {n}: {c.detail}" for n, c in column.cells.items() if c.detail
        ]
    mine = columns[0].cells.values()
    ratios = {
        f"{row.subject}_share_right": round(
            row.figures["right"] / max(1, row.figures["right"] + row.figures["wrong"]), 3
        )
        for row in rows
        if row.figures
    }
    is_ok = bool(mine) and all(cell.mark is not Mark.WRONG for cell in mine)
    return Report("exec", tuple(rows), ok=is_ok, ratios=ratios, notes=(*notes, *details))


def _table(columns: Sequence[Column], cases: Sequence[Case], notes: Sequence[str]) -> str:
    shown = [column for column in columns if not column.skipped]
    rows = ((case.name, *(column.cells[case.name].mark for column in shown)) for case in cases)
    lines = [*table(("case", *(column.client for column in shown)), rows)]
    lines += ["Wrong, or not applicable:", ""]
    for column in shown:
        for name, cell in column.cells.items():
            if cell.detail:
                lines.append(f"- {column.client}, {name}: {cell.detail}")
    lines += [
        f"- {column.client}: skipped ({column.skipped})" for column in columns if column.skipped
    ]
    lines += [f"- {note}" for note in notes]
    return "\n".join(lines)
