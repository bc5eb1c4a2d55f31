"""Publish the output of benchmarks: docs/performance/, its page, and README's table.

Each file holds the output of one run with `--json`; its last line is the object. Figures are
published unchanged, with the day, the commit and the machine that this runs on, so publish where
you measured. Without files, the pages are written again from what is published.

    for each in tokens loop; do scripts/bench $each --json >runs/$each.json; done
    scripts/bench publish runs/tokens.json runs/loop.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rollout_dev.bench.headline import Published, Report, with_headline
from rollout_dev.bench.labels import label

ROOT: Final = Path(__file__).resolve().parents[3]
HEAD: Final = """\
# Performance

Written by `scripts/bench publish` from the JSON that the benchmarks print, which lies beside this
page as `performance/NAME.json`. Subjects take turns in one run; figures are medians of the rounds.
"""
ORDER: Final = ("tokens", "loop", "strands", "exec", "sandbox_start", "fork", "pod_loss", "journal")
"""Comes first on the page; the others follow by name."""


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
    """Return what is to be in the files that show figures, from what is published."""
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
    first = [name for name in ORDER if name in published]
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
    """Yield the lines of a table: subjects side by side, a line for each figure."""
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
