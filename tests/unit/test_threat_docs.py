"""The page about attacks: each point has its tests, and every attacker has points."""

from __future__ import annotations

import re

from checkout import ROOT
from rollout_dev.fuzz.surfaces import SURFACES

PAGE = (ROOT / "docs" / "reference" / "threats.md").read_text()
ROWS = {int(row[1]): row[0] for row in re.finditer(r"^\| (\d+) \|.*\|$", PAGE, re.MULTILINE)}
PAIRS = re.findall(r"^\| (\D[^|]+) \| ([^|]+) \| ([\d, ]+) \|$", PAGE, re.MULTILINE)


def test_each_point_names_a_test_that_holds_it() -> None:
    assert list(range(1, len(ROWS) + 1)) == sorted(ROWS)
    for number, row in ROWS.items():
        named = re.search(r"\| `([\w/]+\.py)` \|$", row)
        assert named, f"point {number} names no test"
        text = (ROOT / "tests" / named[1]).read_text()
        # The attacks of local sandboxes get their points from a table.
        assert f"threat(point={number})" in text or "threat(point=_POINTS" in text, number


def test_every_pair_of_attacker_and_victim_has_points_and_no_point_is_left_out() -> None:
    assert len(PAIRS) == 5
    named = {int(each) for _, _, points in PAIRS for each in points.split(",")}
    assert named == ROWS.keys()


def test_the_number_of_surfaces_is_the_one_there_is() -> None:
    for text in (PAGE, (ROOT / "CHANGELOG.md").read_text()):
        assert f"{len(SURFACES)} surfaces" in text
