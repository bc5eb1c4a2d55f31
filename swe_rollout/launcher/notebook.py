"""Show the progress of a run in a notebook's cell, updated in place.

IPython is not a dependency: it is used only inside a notebook; elsewhere, nothing is shown.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import structlog

from swe_rollout.live.progress import LiveProgress, every
from swe_rollout.live.rows import rows_of, times_of
from swe_rollout.text.notebook_html import Table, card

if TYPE_CHECKING:
    from swe_rollout.live.progress import LiveTitle
    from swe_rollout.live.snapshot import Snapshot

log = structlog.get_logger()
UPDATE_S = 0.5


class Display(Protocol):
    """A replaceable output of a notebook's cell."""

    def update(self, obj: object) -> None:
        """Show another object in its place."""
        ...


class Cell:
    """An output of the running cell."""

    def __init__(self, display: Display) -> None:
        self._display: Display | None = display

    @asynccontextmanager
    async def updating(self, snapshot: Callable[[], Snapshot]) -> AsyncIterator[None]:
        """Show snapshots while the block runs, and the last one at its end."""

        def show() -> None:
            self._update(snapshot())

        show()
        try:
            async with every(UPDATE_S, show):
                yield
        finally:
            show()

    def _update(self, snapshot: Snapshot) -> None:
        if self._display is None:
            return
        try:
            self._display.update(Card(snapshot_card(snapshot)))
        except Exception as error:  # noqa: BLE001 - a notebook that is closed stops no job
            self._display = None
            log.warning("notebook_not_updated", why=str(error))


class NotebookProgress(LiveProgress):
    """Shows the progress of a run in the cell that started it."""

    def __init__(self, title: LiveTitle, cell: Cell) -> None:
        super().__init__(title)
        self._cell = cell

    def updating(self) -> AbstractAsyncContextManager[None]:
        """Update the cell while the block runs, and once at its end."""
        return self._cell.updating(self.snapshot)


class Card:
    """HTML that a notebook shows."""

    def __init__(self, html: str) -> None:
        self._html = html

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return "<progress of a job: shown by notebooks>"


def notebook_progress(title: LiveTitle) -> NotebookProgress | None:
    """Return a progress display for the running cell; None outside notebooks."""
    cell = open_cell()
    return None if cell is None else NotebookProgress(title, cell)


def open_cell() -> Cell | None:
    """Open an output in the running cell; return None outside notebooks."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):  # IPython in a terminal has none
        return None
    from IPython.display import display

    handle = display(Card(card("…", {})), display_id=True)
    return None if handle is None else Cell(handle)


def snapshot_card(snapshot: Snapshot) -> str:
    """Format a snapshot as a card."""
    facts = {row.label: "  ".join(fact.text for fact in row.facts) for row in rows_of(snapshot)}
    outcomes = [
        [
            each.name,
            f"{each.episodes:,}",
            "–" if each.mean_reward is None else f"{each.mean_reward:.2f}",
            each.latest,
        ]
        for each in snapshot.outcomes
    ]
    head = [snapshot.job, *snapshot.about, times_of(snapshot)]
    table = Table(("outcome", "episodes", "reward", "latest"), outcomes)
    return card(" · ".join(filter(None, head)), facts, table=table)
