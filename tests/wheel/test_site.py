"""The documentation as a site: a strict build without a warning, from the locked packages."""

from __future__ import annotations

import re
import subprocess

import pytest

from checkout import ROOT

pytestmark = pytest.mark.wheel


def test_the_site_is_built_without_a_warning() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "docs"], capture_output=True, text=True, timeout=600, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    pages = {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")}
    site = ROOT / "build" / "site"
    assert [page for page in pages if not (site / page).with_suffix(".html").exists()] == []
    first = (site / "index.html").read_text("utf-8")
    assert re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"?https?:", first) == []
