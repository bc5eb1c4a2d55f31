"""README's table of figures, from what is published."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypedDict

from rollout_dev.bench.labels import label

BEGIN: Final = "<!-- written by `scripts/bench publish` -->"
END: Final = "<!-- end -->"
OURS: Final = "swe-rollout"


class Report(TypedDict):
    """The object that a benchmark prints."""

    name: str
    rows: list[dict[str, float | str]]
    ratios: dict[str, float]
    ok: bool
    notes: list[str]


class Published(Report):
    """A report, and what it was measured on."""

    on: str
    """The day, as YYYY-MM-DD."""
    commit: str
    machine: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a published report."""

    subject: str
    label: str
    """As the page of all figures labels it."""
    decimals: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. `{}` in a text stands for its next figure."""

    what: str
    bench: str
    ours: tuple[str, *tuple[Figure, ...]]
    others: tuple[str, *tuple[Figure, ...]]


LINES: Final = (
    Line(
        "`true` in a pod, p50",
        "exec",
        ("{} ms", Figure(OURS, "p50, ms", 1)),
        (
            "{} ms by a bare shell over an open stream, {} ms by the `kubernetes` client",
            Figure("true by a bare shell over one stream", "p50, ms", 1),
            Figure("kubernetes", "p50, ms"),
        ),
    ),
    Line(
        "commands a second, 64 pods",
        "exec",
        ("{}", Figure(OURS, "commands per second, 64 pods")),
        ("{} by the `kubernetes` client", Figure("kubernetes", "commands per second, 64 pods")),
    ),
    Line(
        "start of a sandbox to its first command, p50",
        "sandbox_start",
        (
            "{} ms from a warm pod, {} ms cold",
            Figure("swe-rollout, warm claim", "p50, ms"),
            Figure(OURS, "p50, ms"),
        ),
        (
            "{} ms by a bare pod and one exec",
            Figure("bare create + wait + one exec", "p50, ms"),
        ),
    ),
    Line(
        "agent turns a second, 64 episodes",
        "loop",
        ("{}", Figure(OURS, "turns per second, 64 at once")),
        ("{} with strands-sglang", Figure("strands-sglang", "turns per second, 64 at once")),
    ),
    Line(
        "token bookkeeping of a turn, after 1,000 turns, p50",
        "tokens",
        ("{} ms", Figure(OURS, "p50, 1,000 turns, ms", 1)),
        (
            "{} ms with strands-sglang",
            Figure("strands-sglang 0.4.3", "p50, 1,000 turns, ms", 1),
        ),
    ),
)


def with_headline(readme: str, published: Mapping[str, Published]) -> str:
    """Replace the table between the marks. Raises ValueError where these are missing."""
    table = "\n".join(
        [
            "| | swe-rollout | compared with |",
            "|---|---:|---:|",
            *(_line(line, published) for line in LINES),
        ]
    )
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(readme):
        raise ValueError(f"README.md has no {BEGIN} … {END}")
    return pattern.sub(lambda _: f"{BEGIN}\n{table}\n{END}", readme)


def _line(line: Line, published: Mapping[str, Published]) -> str:
    report = published[line.bench]
    ours, others = (
        text.format(*(f"{_value(report, each):,.{each.decimals}f}" for each in figures))
        for text, *figures in (line.ours, line.others)
    )
    return f"| {line.what} | {ours} | {others} |"


def _value(report: Published, figure: Figure) -> float:
    for row in report["rows"]:
        if row["subject"] == figure.subject:
            for key, value in row.items():
                if label(key) == figure.label:
                    return float(value)
    raise ValueError(f"{report['name']} has no {figure.label!r} of {figure.subject!r}")
