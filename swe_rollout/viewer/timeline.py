"""Draw an episode's time as one HTML file, or as an SVG picture: phases, turns, calls, and sums.

Neither has scripts or loads anything; the names of a policy's calls are escaped text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from swe_rollout.export.files import FileFormat, FolderFormat
from swe_rollout.export.profile import (
    STARTS,
    Event,
    EventType,
    TypeSummary,
    events,
    summary,
    unaccounted_s,
)
from swe_rollout.text.escaping import escaped, one_line
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
_LANE_NAMES: Final = ("episode", "phases", "turns", "generations", "calls")
_LEFT: Final = 100
"""The width of the names of rows in a picture."""
_TICKS: Final = 8
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = """\
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem; color: #222; background: #fff; }
.scroll { overflow-x: auto; border: 1px solid #ddd; background: #fafafa; }
svg { display: block; width: 100%; height: 10rem; }
#zoom-4:target svg { width: 400%; } #zoom-16:target svg { width: 1600%; }
#zoom-64:target svg { width: 6400%; } .zoom a { margin-left: .5em; }
table { border-collapse: collapse; } th, td { padding: 2px 12px 2px 0; text-align: left; }
.n { text-align: right; font-variant-numeric: tabular-nums; } .dim { color: #667; }
dl { display: flex; gap: 2rem; } dt { color: #667; } dd { margin: 0; font-weight: 600; }
.key { display: inline-block; width: .8em; height: .8em; margin-right: .5em; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #16181d; } a { color: #8ab4f8; }
  .scroll { background: #1d2027; border-color: #333; }
}
"""


def timeline_page(trajectory: Trajectory) -> str:
    """Return the page of one episode."""
    title = f"{trajectory.episode}: timeline"
    body = join(
        [
            tag("h1", str(trajectory.episode)),
            facts(_facts(trajectory)),
            _drawing(trajectory),
            tag("p", f"Point at a bar for its name and its time. Note: {STARTS}.", class_="dim"),
            _left_out(trajectory),
            table(["Kind", "Events#", "Seconds#", "Longest#"], _sums(trajectory)),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{escaped(title)}</title>\n<style>\n{_STYLE}</style>\n</head>\n"
        f"<body>\n{body.html}\n</body>\n</html>\n"
    )


def _facts(trajectory: Trajectory) -> Iterator[tuple[str, str]]:
    timing = trajectory.timing
    yield "in all", format_duration(timing.total_s)
    yield "start", format_duration(timing.start_s)
    yield "engine", format_duration(timing.engine_s)
    yield "tools", format_duration(timing.tools_s)
    yield "grading", format_duration(timing.grade_s)
    yield "other", format_duration(unaccounted_s(trajectory))


def _drawing(trajectory: Trajectory) -> Markup:
    """Draw the bars; links make the drawing wider, so that it scrolls."""
    scale = _WIDTH / max(trajectory.timing.total_s, 1e-6)
    bars = [_bar(event, scale) for event in islice(events(trajectory), MOST_EVENTS)]
    height = (len(_LANES) + 1) * _ROW
    # SVG attributes are written like HTML's; their values are our own numbers.
    drawing = tag(
        "div",
        tag("svg", *bars, viewBox=f"0 0 {_WIDTH} {height}", preserveAspectRatio="none", role="img"),
        class_="scroll",
    )
    for factor in _ZOOMS:
        drawing = tag("div", drawing, id=f"zoom-{factor}")
    links = [tag("a", f"×{factor}", href=f"#zoom-{factor}") for factor in _ZOOMS]
    rows = "rows: the episode; its phases; turns; generations; calls"
    return join([tag("p", rows, " · zoom ", *links, class_="dim zoom"), drawing])


def _bar(event: Event, scale: float) -> Markup:
    lane = next((row for row, kinds in enumerate(_LANES) if event.type in kinds), len(_LANES))
    left = min(event.start_s * scale, _WIDTH - _THINNEST)
    width = min(max(event.duration_s * scale, _THINNEST), _WIDTH - left)
    name, detail = one_line(event.name, limit=80), one_line(event.detail, limit=80)
    told = f"{name}: {format_duration(event.duration_s)}" + (f" ({detail})" if detail else "")
    return tag(
        "rect",
        tag("title", told),
        x=f"{left:.3f}",
        y=str(lane * _ROW + 1),
        width=f"{width:.3f}",
        height=str(_ROW - 2),
        fill=_COLOURS[event.type],
    )


def timeline_picture(trajectory: Trajectory) -> str:
    """Return the drawing of one episode as SVG, with an axis and names of rows and colours."""
    total_s = max(trajectory.timing.total_s, 1e-6)
    scale, foot = _WIDTH / total_s, 2 * _ROW + (len(_LANES) + 1) * _ROW
    bars = [_bar(event, scale) for event in islice(events(trajectory), MOST_EVENTS)]
    lanes = [
        _label(name, _LEFT - 8, 2 * _ROW + row * _ROW + 13, anchor="end")
        for row, name in enumerate(_LANE_NAMES)
    ]
    ticks = [part for at_s in _ticks(total_s) for part in _tick(at_s, scale, foot)]
    kinds = summary(events(trajectory)).items()
    keys = [part for row, (kind, sums) in enumerate(kinds) for part in _key(kind, sums, row, foot)]
    height = foot + (len(kinds) + 2) * _ROW
    ended = trajectory.stop_reason or "failed"
    facts_ = " · ".join(f"{name} {value}" for name, value in _facts(trajectory))
    return tag(
        "svg",
        tag("rect", width="100%", height="100%", fill="#fff"),
        _label(f"{trajectory.episode} · {ended} · {facts_}", 8, 20),
        *lanes,
        *ticks,
        tag("g", *bars, transform=f"translate({_LEFT} {2 * _ROW})"),
        *keys,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_LEFT + _WIDTH + 40} {height}",
        font_family="sans-serif",
        font_size="12",
    ).html


def _label(text: str, x: float, y: float, *, anchor: str = "") -> Markup:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, fill="#333")


def _ticks(total_s: float) -> Iterator[float]:
    """Yield the times on the axis: multiples of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(total_s / _TICKS))
    step = next(each * power for each in (1, 2, 5, 10) if each * power * _TICKS >= total_s)
    yield from (number * step for number in range(int(total_s / step) + 1))


def _tick(at_s: float, scale: float, foot: int) -> Iterator[Markup]:
    x = _LEFT + at_s * scale
    line = {"x1": f"{x:.1f}", "x2": f"{x:.1f}", "y1": str(2 * _ROW), "y2": str(foot + 4)}
    yield tag("line", stroke="#ddd", **line)
    yield _label(f"{at_s:g} s", x, foot + 17, anchor="middle")


def _key(kind: EventType, sums: TypeSummary, row: int, foot: int) -> Iterator[Markup]:
    y = foot + (row + 1.5) * _ROW
    yield tag("rect", x=str(_LEFT), y=f"{y:.1f}", width="10", height="10", fill=_COLOURS[kind])
    times = f"{format_duration(sums.total_s)}, longest {format_duration(sums.longest_s)}"
    yield _label(f"{kind.value}: {sums.count:,}, {times}", _LEFT + 18, y + 9)


def _left_out(trajectory: Trajectory) -> Markup:
    more = sum(1 for _ in events(trajectory)) - MOST_EVENTS
    if more <= 0:
        return Markup("")
    return tag("p", f"{more} further events are in the table only.", class_="dim")


def _sums(trajectory: Trajectory) -> Iterator[list[Markup | str]]:
    for kind, found in summary(events(trajectory)).items():
        key = tag("span", "", class_="key", style=f"background: {_COLOURS[kind]}")
        yield [
            join([key, kind.value]),
            f"{found.count:,}",
            format_duration(found.total_s),
            format_duration(found.longest_s),
        ]


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


@dataclass(frozen=True, slots=True)
class Markup:
    """HTML whose text is escaped."""

    html: str


Part = Markup | str


def join(parts: Iterable[Part]) -> Markup:
    """Concatenate parts; strings are escaped."""
    return Markup("".join(p.html if isinstance(p, Markup) else escaped(p) for p in parts))


def tag(name: str, *parts: Part, **attributes: str) -> Markup:
    """Make `<name …>parts</name>`; `class_` is the attribute `class`, `a_b` is `a-b`."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value
    )
    return Markup(f"<{name}{named}>{join(parts).html}</{name}>")


def table(columns: Iterable[str], rows: Iterable[Iterable[Part]]) -> Markup:
    """Make a table; columns whose name ends in `#` hold numbers."""
    names = list(columns)
    classes = ["n" if name.endswith("#") else "" for name in names]
    head = [
        tag("th", name.rstrip("#"), class_=kind) for name, kind in zip(names, classes, strict=True)
    ]
    body = [
        tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row, classes, strict=True)))
        for row in rows
    ]
    return tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body))


def facts(pairs: Iterable[tuple[str, Part]]) -> Markup:
    """Make a row of named values."""
    return tag(
        "dl",
        *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs),
        class_="facts",
    )
