"""Draw a snapshot as lines of a terminal: a pure function of the snapshot and the window's size.

The number of lines depends on the size and the kind of source, never on the job's progress.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.text import Text

from swe_rollout.live.rows import Fact, rows_of, times_of
from swe_rollout.text.escaping import one_line
from swe_rollout.text.formatting import format_number

if TYPE_CHECKING:
    from swe_rollout.live.rows import Row
    from swe_rollout.live.snapshot import Outcome, Snapshot

OUTCOME_ROWS: Final = 5
_LABEL: Final = 10
_GAP: Final = 2
_WIDEST_BAR: Final = 30
_BAR_FROM: Final = 60
"""The minimum width, in columns, for a progress bar."""
_LATEST_FROM: Final = 12
_OUTCOME: Final = 16
_HEAD_RANK, _TABLE_RANK, _BLANK_RANK = 0, 20, 40


def draw(snapshot: Snapshot, *, width: int, height: int) -> list[Text]:
    """Return at most `height - 1` lines, each narrower than the window."""
    room = max(width - 1, 1)  # a full line would leave the cursor at the edge
    ranked = [(_HEAD_RANK, _head(snapshot, room)), (_BLANK_RANK, Text())]
    ranked += [(row.rank, _row(row, snapshot, room)) for row in rows_of(snapshot)]
    ranked.append((_BLANK_RANK, Text()))
    ranked += [(_TABLE_RANK + n, line) for n, line in enumerate(_outcomes(snapshot, room))]
    kept = max(height - 1, 1)
    shown = sorted(range(len(ranked)), key=lambda n: (ranked[n][0], n))[:kept]
    return [ranked[n][1] for n in sorted(shown)]


def _head(snapshot: Snapshot, room: int) -> Text:
    """Format the job's name, facts and times; the times are never cut for a long name."""
    times = Text(times_of(snapshot))
    times.truncate(room)
    left = room - times.cell_len - _GAP
    if left < 1:
        return times
    name = Text(one_line(snapshot.job), "bold")
    name.truncate(left, overflow="ellipsis")
    facts = (Fact(one_line(each)) for each in snapshot.about if each)
    return Text.assemble(_fitted(name, facts, left), " " * _GAP, times)


def _row(row: Row, snapshot: Snapshot, room: int) -> Text:
    line = Text(f"{row.label:<{_LABEL}}", "dim", end="")
    line.truncate(room)
    left = room - line.cell_len
    if row.label == "episodes" and room >= _BAR_FROM:
        bar = _bar(snapshot.committed, snapshot.total, min(_WIDEST_BAR, room - _BAR_FROM + 8))
        left -= bar.cell_len + _GAP
        line = Text.assemble(line, bar, " " * _GAP)
    return Text.assemble(line, _fitted(Text(), row.facts, left)) if left > 0 else line


def _fitted(line: Text, facts: Iterable[Fact], room: int) -> Text:
    """Append the facts that fit completely; cut the first one rather than omit it."""
    for fact in facts:
        gap = _GAP if line else 0
        if line and line.cell_len + gap + cell_len(fact.text) > room:
            break
        shown = Text(fact.text, fact.style)
        shown.truncate(room, overflow="ellipsis")
        line = Text.assemble(line, " " * gap, shown)
    return line


def _bar(done: int, total: int, width: int) -> Text:
    full = min(int(width * done / max(total, 1)), width)
    return Text.assemble(("━" * full, "green"), ("─" * (width - full), "dim"))


def _outcomes(snapshot: Snapshot, room: int) -> list[Text]:
    """Return the table's header and rows, including empty ones."""
    is_detailed = snapshot.records is not None
    head = _cells("OUTCOME", "EPISODES", "REWARD" if is_detailed else "", "LATEST", room)
    head.stylize("dim")
    shown = [_outcome(each, room, is_detailed) for each in snapshot.outcomes[:OUTCOME_ROWS]]
    return [head, *shown, *(Text() for _ in range(OUTCOME_ROWS - len(shown)))]


def _outcome(outcome: Outcome, room: int, is_detailed: bool) -> Text:  # noqa: FBT001
    reward = format_number(outcome.mean_reward) if is_detailed else ""
    name, latest = one_line(outcome.name), one_line(outcome.latest)
    return _cells(name, f"{outcome.episodes:,}", reward, latest, room)


def _cells(name: str, episodes: str, reward: str, latest: str, room: int) -> Text:
    first = Text(name)
    first.truncate(_OUTCOME, overflow="ellipsis", pad=True)
    line = Text.assemble(first, f"  {episodes:>8}")
    if reward:
        line.append(f"  {reward:>6}")
        if room - line.cell_len >= _LATEST_FROM:
            line.append(f"  {latest}")
    line.truncate(room, overflow="ellipsis")
    return line
