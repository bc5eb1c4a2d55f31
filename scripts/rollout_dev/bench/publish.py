"""Publish the output of benchmarks: docs/performance/, its page, and README's table.

Each file holds the output of one run with `--json`; its last line is the object. Figures are
published unchanged, with the day, the commit and the machine that this runs on, so publish where
you measured. Without files, the pages are rewritten from the published figures.

    for each in tokens loop; do scripts/bench $each --json >runs/$each.json; done
    scripts/bench publish runs/tokens.json runs/loop.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, TypedDict

import msgspec
import yaml

_UNITS: Final = {"ms": "ms", "s": "s", "mib": "MiB", "kib": "KiB"}


class Figure(NamedTuple):
    """One figure of a published report."""

    subject: str
    label: str
    """The figure's label on the page of all figures."""
    decimals: int


class _Side(msgspec.Struct, frozen=True):
    text: str
    figures: list[Figure]


class _Line(msgspec.Struct, frozen=True):
    what: str
    bench: str
    ours: _Side
    others: _Side


class _Words(msgspec.Struct, frozen=True):
    """`publish.yaml`, which explains its parts."""

    names: dict[str, str]
    patterns: list[tuple[str, str, str]]
    counted: list[tuple[str, str]]
    lines: list[_Line]
    order: list[str]


_WORDS: Final = msgspec.convert(
    yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8")), _Words
)
_WINDOW: Final = re.compile(r"(cpu_)?ms_turns_(\d+)_to_(\d+)")


def label(key: str) -> str:
    """Write out a key of a report: figure, scale, unit."""
    if window := _WINDOW.fullmatch(key):
        name = "client CPU per turn" if window[1] else "time of a turn"
        return f"{name}, ms, turns {window[2]} to {window[3]}"
    if key.startswith("trained_share_"):
        return f"trained share, {key.removeprefix('trained_share_').replace('_', '.')} % noise"
    for pattern, name, what in _WORDS.patterns:
        if found := re.fullmatch(pattern, key):
            return f"{name}, {_count(found[1], what)}"
    key, scale = _without_scale(key)
    key, unit = _without_unit(key)
    name = _WORDS.names.get(key, key.replace("_", " "))
    return ", ".join(part for part in (name, scale, unit) if part)


def _without_scale(key: str) -> tuple[str, str]:
    if key in _WORDS.names:
        return key, ""
    for pattern, what in _WORDS.counted:
        if found := re.fullmatch(pattern, key):
            return found[1], _count(found[2], what)
    return key, ""


def _without_unit(key: str) -> tuple[str, str]:
    name, _, last = key.rpartition("_")
    if key in _WORDS.names or not name:
        return key, ""
    return (name, _UNITS[last]) if last in _UNITS else (key, "")


def _count(number: str, what: str) -> str:
    return f"{int(number):,} {what.removesuffix('s') if number == '1' else what}"


BEGIN: Final = "<!-- written by `scripts/bench publish` -->"
END: Final = "<!-- end -->"


class Report(TypedDict):
    """The object that a benchmark prints."""

    name: str
    rows: list[dict[str, float | str]]
    ratios: dict[str, float]
    ok: bool
    notes: list[str]


class Published(Report):
    """A report and the machine on which it was measured."""

    on: str
    """The day of the measurement, as YYYY-MM-DD."""
    commit: str
    machine: str


def with_headline(readme: str, published: Mapping[str, Published]) -> str:
    """Replace the table between the marks. Raises ValueError if the marks are missing."""
    table = "\n".join(
        [
            "| | swe-rollout | compared with |",
            "|---|---:|---:|",
            *(_line(line, published) for line in _WORDS.lines),
        ]
    )
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(readme):
        raise ValueError(f"README.md has no {BEGIN} … {END}")
    return pattern.sub(lambda _: f"{BEGIN}\n{table}\n{END}", readme)


def _line(line: _Line, published: Mapping[str, Published]) -> str:
    report = published[line.bench]
    ours, others = (
        side.text.format(*(f"{_value(report, each):,.{each.decimals}f}" for each in side.figures))
        for side in (line.ours, line.others)
    )
    return f"| {line.what} | {ours} | {others} |"


def _value(report: Published, figure: Figure) -> float:
    for row in report["rows"]:
        if row["subject"] == figure.subject:
            for key, value in row.items():
                if label(key) == figure.label:
                    return float(value)
    raise ValueError(f"{report['name']} has no {figure.label!r} of {figure.subject!r}")


ROOT: Final = Path(__file__).resolve().parents[3]
HEAD: Final = """\
# Performance

`scripts/bench publish` writes this page from the JSON that the benchmarks print, which is beside it
in `performance/NAME.json`. Subjects take turns in one run; figures are medians of the rounds.
"""


def main(arguments: Sequence[str]) -> int:
    """Write the pages; exit with 2 if a file holds no report."""
    options = argparse.ArgumentParser(
        prog="scripts/bench publish",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("files", nargs="*", type=Path, help="outputs of benchmarks with --json")
    options.add_argument("--root", type=Path, default=ROOT, help="the checkout to write in")
    given = options.parse_args(arguments)
    folder: Path = given.root / "docs" / "performance"
    try:
        reports = [_read(file) for file in given.files]
    except (IndexError, KeyError, OSError, TypeError, ValueError) as error:
        sys.stderr.write(f"publish: no report can be read: {error}\n")
        sys.stderr.write("  fix  give outputs of scripts/bench NAME --json\n")
        return 2
    for report in reports:
        text = json.dumps(_measured_here(report), indent=1, ensure_ascii=False)
        (folder / f"{report['name']}.json").write_text(text + "\n", "utf-8")
    for path, text in pages(given.root).items():
        path.write_text(text, "utf-8")
        print(path)
    return 0


def pages(root: Path) -> Mapping[Path, str]:
    """Return the new content of the files that show figures, made from what is published."""
    files = (root / "docs" / "performance").glob("*.json")
    published = {file.stem: _published(file) for file in files}
    readme = root / "README.md"
    return {
        root / "docs" / "performance.md": page(_in_order(published)),
        readme: with_headline(readme.read_text("utf-8"), published),
    }


def page(reports: Iterable[Published]) -> str:
    """Format reports as Markdown."""
    return "\n".join([HEAD, *map(_section, reports)])


def _in_order(published: Mapping[str, Published]) -> list[Published]:
    first = [name for name in _WORDS.order if name in published]
    return [published[name] for name in (*first, *sorted(published.keys() - set(first)))]


def _measured_here(report: Report) -> Published:
    git = ("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    on = datetime.now(UTC).date().isoformat()
    return Published(**report, on=on, commit=commit, machine=machine())


def machine() -> str:
    """Return the processor, its number of cores, the system and the Python."""
    cores = len(os.sched_getaffinity(0))
    return f"{_processor()}, {cores} cores, {platform.system()}, Python {platform.python_version()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _read(file: Path) -> Report:
    report: Report = json.loads(file.read_text("utf-8").splitlines()[-1])
    for key in Report.__annotations__:
        if key not in report:
            raise KeyError(f"{file} has no {key!r} in its last line")
    return report


def _published(file: Path) -> Published:
    found: Published = json.loads(file.read_text("utf-8"))
    return found


def _section(report: Published) -> str:
    name = report["name"]
    goals = f"{'' if report['ok'] else 'NOT '}all goals met"
    where = f"{report['on']}, commit {report['commit']}, {report['machine']}"
    return "\n".join(
        [
            f"## {name}\n",
            f"`scripts/{_folder(name)} {name}`: {goals}. {where}.\n",
            *_table(report["rows"]),
            "",
            *(f"- {label(key)}: {value:g}" for key, value in report["ratios"].items()),
            *(f"- {note}" for note in report["notes"] if note),
            "",
        ]
    )


def _folder(name: str) -> str:
    is_bench = Path(__file__).with_name(f"{name}.py").exists()
    return "bench" if is_bench else "conformance"


def _table(rows: Sequence[dict[str, float | str]]) -> Iterator[str]:
    """Yield the lines of a table: one column per subject, one line per figure."""
    figures = dict.fromkeys(key for row in rows for key in row if key not in ("subject", "skipped"))
    yield "| | " + " | ".join(str(row["subject"]) for row in rows) + " |"
    yield "|---|" + "---:|" * len(rows)
    for figure in figures:
        yield f"| {label(figure)} | " + " | ".join(_cell(row, figure) for row in rows) + " |"
    for row in rows:
        if "skipped" in row:
            yield f"\n{row['subject']}: {row['skipped']}."


def _cell(row: dict[str, float | str], figure: str) -> str:
    value = row.get(figure)
    return f"{value:,g}" if isinstance(value, int | float) else str(value or "")
