"""Time until the page of a job of 5,000 episodes is shown in Chromium, and its size.

The episodes are those of a real run (`--job runs/demo`), repeated under other names. Time is the
browser's own, from the start of the navigation to the drawn table; the file is read from disk.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rollout_dev.chromium import HOW_TO_INSTALL, Browser, chromium, find_chromium
from rollout_dev.report import Report, Row, option, program
from swe_rollout.store.layout import JobRef
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.viewer.page import Page

EPISODES: Final = 5000
GOAL_S: Final = 2.0
_SIZES: Final = (24, EPISODES)
_READY: Final = "performance.getEntriesByName('ready')[0]?.startTime"


@program(option("--job", required=True, help="a stored job"), quick="fewer rounds", shows_logs=True)
def main(given: Namespace) -> Report:
    """Open the page of the job."""
    if (path := find_chromium()) is None:
        return Report("viewer", (Row("page", skipped=HOW_TO_INSTALL),), ok=False)
    return _measure(given.job, path, rounds=3 if given.quick else 10)


def _measure(job: str, path: str, rounds: int) -> Report:
    found = asyncio.run(_read(JobRef.parse(job)))
    rows, slowest = list[Row](), 0.0
    with tempfile.TemporaryDirectory() as folder, chromium(path) as browser:
        for count in _SIZES:
            sys.stderr.write(f"{count} episodes\n")
            page = Path(folder) / f"{count}.html"
            made = _page(found, count)
            page.write_text(made.html(), encoding="utf-8")
            times = [_open(browser, page) for _ in range(rounds)]
            slowest = max(slowest, statistics.median(times))
            figures = {
                "open_p50_s": round(statistics.median(times), 3),
                "open_max_s": round(max(times), 3),
                "episodes_in_full": made.shown,
                "file_mib": round(page.stat().st_size / 2**20, 2),
            }
            rows.append(Row(f"{count:,} episodes", figures))
    return Report(
        "viewer",
        tuple(rows),
        ok=slowest <= GOAL_S,
        notes=(
            f"goal: {EPISODES:,} episodes within {GOAL_S:g} s",
            "episodes that are not in the file in full are in its table; `--serve` shows all",
        ),
    )


async def _read(ref: JobRef) -> list[Trajectory]:
    store = Store.open(ref.store_uri)
    return [each async for each in store.trajectories(ref.job, on_damage=lambda _: None)]


def _page(found: Sequence[Trajectory], count: int) -> Page:
    page = Page()
    job = page.add_job("bench", "runs/bench")
    for number in range(count):
        episode = EpisodeId("bench", f"task-{number // 8}", number % 8)
        page.add(job, replace(found[number % len(found)], episode=episode), None)
    return page


def _open(browser: Browser, page: Path) -> float:
    browser.open(page.as_uri())
    return float(browser.evaluate(_READY)) / 1000
