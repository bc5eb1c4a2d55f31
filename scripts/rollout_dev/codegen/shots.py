"""Take the pictures of the viewer in docs/images from a real run of the demo's job.

    scripts/shots                       run the job first
    scripts/shots --job runs/demo       of a job that was run

Needs Chromium: `apt-get install chromium-headless-shell`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rollout_dev.chromium import HOW_TO_INSTALL, Browser, chromium, find_chromium

ROOT: Final = Path(__file__).resolve().parents[3]
JOB: Final = ROOT / "examples" / "01-release-pairs" / "job.yaml"
IMAGES: Final = ROOT / "docs" / "images"
_INSTANCE: Final = "sqlparse-0.5.2"
_EPISODE: Final = f"#/0/{_INSTANCE}/0"


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture: what it shows of the page of the job."""

    name: str
    address: str = ""
    scheme: str = "light"
    act: str = ""
    """JavaScript before the picture is taken."""
    height: int = 820


SHOTS: Final = (
    Shot("viewer-job"),
    Shot("viewer-episode", f"{_EPISODE}/1"),
    Shot(
        "viewer-tokens",
        f"{_EPISODE}/tokens",
        "dark",
        "document.querySelectorAll('#tokens summary')[1].click();"
        "document.querySelectorAll('#tokens summary')[2].click();"
        "document.querySelector('#tokens').scrollIntoView()",
        560,
    ),
    Shot("viewer-compare", f"#/compare/0/{_INSTANCE}/0/0/{_INSTANCE}/1"),
)


def main(arguments: Sequence[str]) -> None:
    """Take all pictures and print their paths."""
    options = argparse.ArgumentParser(
        prog="scripts/shots",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--job", help="a stored run of examples/01-release-pairs")
    job: str | None = options.parse_args(arguments).job
    path = find_chromium()
    if path is None:
        sys.exit(HOW_TO_INSTALL)
    with tempfile.TemporaryDirectory() as folder, chromium(path) as browser:
        if job is None:
            job = f"{folder}/runs/demo"
            _cli("run", str(JOB), "--store", f"file://{folder}/runs", "--name", "demo")
        page = Path(folder) / "page.html"
        _cli("view", job, "-O", str(page))
        for shot in SHOTS:
            _take(browser, page, shot)


def _cli(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "swe_rollout.cli.main", *arguments], check=True)


def _take(browser: Browser, page: Path, shot: Shot) -> None:
    browser.prefer(shot.scheme)
    browser.open(f"{page.as_uri()}{shot.address}", width=1200, height=shot.height)
    browser.evaluate(shot.act or "0")
    browser.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 100)))")
    out = IMAGES / f"{shot.name}.webp"
    out.write_bytes(browser.picture())
    sys.stdout.write(f"{out.relative_to(ROOT)}: {out.stat().st_size / 1024:.0f} KiB\n")


if __name__ == "__main__":
    main(sys.argv[1:])
