"""Draw an episode's time as one HTML file, or as an SVG picture: phases, turns, calls, and sums.

Neither has scripts or loads anything; the names of a policy's calls are escaped text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from swe_rollout.export.files import FileFormat, FolderFormat
from swe_rollout.export.profile import (
    STARTS,
    Event,
    EventType,
    events,
    summary,
    unaccounted_s,
)
from swe_rollout.text.escaping import one_line, templates
from swe_rollout.text.formatting import format_duration
from swe_rollout.types.trajectory import Trajectory

MOST_EVENTS: Final = 20_000
"""The most events drawn in a page; up to here a browser stays responsive."""
_WIDTH: Final = 1200
_ROW: Final = 18
_THINNEST: Final = 0.05
"""The least width of a bar; wider drawings make it visible."""
_ZOOMS: Final = (1, 4, 16, 64)
_COLOURS: Final = {
    EventType.INSTANCE_PROCESSING: "#8a8f98",
    EventType.POD_CREATION: "#b07aa1",
    EventType.TRAJECTORY_STEP: "#bab0ac",
    EventType.LLM_CALL: "#4e79a7",
    EventType.TOOL_EXECUTION: "#f28e2b",
    EventType.BASH_COMMAND: "#e15759",
    EventType.FILE_READ: "#76b7b2",
    EventType.FILE_WRITE: "#59a14f",
    EventType.SEARCH_OPERATION: "#edc948",
    EventType.CUSTOM: "#9c755f",
}
_LANES: Final = (
    (EventType.INSTANCE_PROCESSING,),
    (EventType.POD_CREATION, EventType.CUSTOM),
    (EventType.TRAJECTORY_STEP,),
    (EventType.LLM_CALL,),
)
"""The kinds of events in each row, from the top; all other kinds are in the row below."""
_FOOT: Final = 2 * _ROW + (len(_LANES) + 1) * _ROW
"""The height of a picture down to its axis."""
_LEFT: Final = 100
"""The width of the names of rows in a picture."""
_TICKS: Final = 8


@dataclass(frozen=True, slots=True)
class _Bar:
    """A bar of the drawing, in units of its view box."""

    label: str
    x: str
    y: int
    width: str
    height: int
    fill: str


@dataclass(frozen=True, slots=True)
class _Key:
    """A line of the table: a kind of event, its colour, and how many and how long they were."""

    kind: str
    fill: str
    count: str
    total: str
    longest: str


def timeline_page(trajectory: Trajectory) -> str:
    """Return the page of one episode."""
    more = sum(1 for _ in events(trajectory)) - MOST_EVENTS
    return _drawn("timeline.html", trajectory, zooms=_ZOOMS, starts=STARTS, more=more)


def timeline_picture(trajectory: Trajectory) -> str:
    """Return the drawing of one episode as SVG, with an axis and names of rows and colours."""
    total_s = _total_s(trajectory)
    ticks = [(f"{at:g}", f"{_LEFT + at * _WIDTH / total_s:.1f}") for at in _ticks(total_s)]
    ended = trajectory.stop_reason or "failed"
    return _drawn(
        "timeline.svg", trajectory, ticks=ticks, ended=ended, left=_LEFT, foot=_FOOT, row=_ROW
    )


def _drawn(template: str, trajectory: Trajectory, **more: object) -> str:
    bars = (_bar(event, trajectory) for event in events(trajectory))
    return (
        templates("swe_rollout.viewer")
        .get_template(template)
        .render(
            episode=str(trajectory.episode),
            facts=list(_facts(trajectory)),
            bars=islice(bars, MOST_EVENTS),
            keys=list(_keys(trajectory)),
            width=_WIDTH,
            height=(len(_LANES) + 1) * _ROW,
            **more,
        )
    )


def _total_s(trajectory: Trajectory) -> float:
    return max(trajectory.timing.total_s, 1e-6)


def _facts(trajectory: Trajectory) -> Iterator[tuple[str, str]]:
    timing = trajectory.timing
    yield "in all", format_duration(timing.total_s)
    yield "start", format_duration(timing.start_s)
    yield "engine", format_duration(timing.engine_s)
    yield "tools", format_duration(timing.tools_s)
    yield "grading", format_duration(timing.grade_s)
    yield "other", format_duration(unaccounted_s(trajectory))


def _bar(event: Event, trajectory: Trajectory) -> _Bar:
    lane = next((row for row, kinds in enumerate(_LANES) if event.type in kinds), len(_LANES))
    scale = _WIDTH / _total_s(trajectory)
    left = min(event.start_s * scale, _WIDTH - _THINNEST)
    width = min(max(event.duration_s * scale, _THINNEST), _WIDTH - left)
    name, detail = one_line(event.name, limit=80), one_line(event.detail, limit=80)
    label = f"{name}: {format_duration(event.duration_s)}" + (f" ({detail})" if detail else "")
    fill = _COLOURS[event.type]
    return _Bar(label, f"{left:.3f}", lane * _ROW + 1, f"{width:.3f}", _ROW - 2, fill)


def _keys(trajectory: Trajectory) -> Iterator[_Key]:
    for kind, found in summary(events(trajectory)).items():
        total, longest = format_duration(found.total_s), format_duration(found.longest_s)
        yield _Key(kind.value, _COLOURS[kind], f"{found.count:,}", total, longest)


def _ticks(total_s: float) -> Iterator[float]:
    """Yield the times on the axis: multiples of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(total_s / _TICKS))
    step = next(each * power for each in (1, 2, 5, 10) if each * power * _TICKS >= total_s)
    yield from (number * step for number in range(int(total_s / step) + 1))


@dataclass(frozen=True, slots=True)
class TimelineFormats:
    """The export formats of one kind of drawing."""

    draw: Callable[[Trajectory], str]
    suffix: str

    def file(self) -> FileFormat:
        """Return the format for one episode: its drawing."""
        return FileFormat(self._drawn)

    def folder(self) -> FolderFormat:
        """Return the format for a job: `<instance>/<sample>.html` or `.svg`."""

        def files(trajectory: Trajectory) -> Iterator[tuple[str, bytes]]:
            episode = trajectory.episode
            yield f"{episode.instance}/{episode.sample}{self.suffix}", self._drawn(trajectory)

        return FolderFormat(files)

    def _drawn(self, trajectory: Trajectory) -> bytes:
        return self.draw(trajectory).encode(errors="replace")


PAGES: Final = TimelineFormats(timeline_page, ".html")
PICTURES: Final = TimelineFormats(timeline_picture, ".svg")
