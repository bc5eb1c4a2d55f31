"""Files are left out of patches by glob; every other byte stays (E9, WE6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.export.patches import FilteredPatch, PatchFilter
from unit.export.export_parts import PATCH

PARTS = ["diff --git" + each for each in PATCH.split("diff --git")[1:]]


@pytest.mark.parametrize(
    ("globs", "kept", "dropped"),
    [
        ((), PARTS, ()),
        (("pyproject.toml",), PARTS[1:], ("pyproject.toml",)),
        (("*.toml", "test_*.py"), PARTS[1:2], ("pyproject.toml", "tests/deep/test_x.py")),
        (("tests/*",), PARTS[:2], ("tests/deep/test_x.py",)),
        (("*/x.py",), [PARTS[0], PARTS[2]], ("src/x.py",)),
        (("PYPROJECT.TOML", "ests/*"), PARTS, ()),
        (("*",), [], ("pyproject.toml", "src/x.py", "tests/deep/test_x.py")),
    ],
)
def test_globs_choose_files(
    globs: tuple[str, ...], kept: list[str], dropped: tuple[str, ...]
) -> None:
    assert PatchFilter(globs).apply(PATCH) == FilteredPatch("".join(kept), dropped)


def test_a_renamed_file_is_dropped_by_either_name() -> None:
    patch = "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n"
    assert PatchFilter(("x",)).apply(patch) == FilteredPatch("", ("x",))
    assert PatchFilter(("y",)).apply(patch) == FilteredPatch("", ("y",))


def test_what_looks_like_a_header_inside_a_hunk_is_content() -> None:
    patch = (
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,1 +1,2 @@\n"
        " diff --git a/y b/y\n+diff --git a/y b/y\n"
    )
    assert PatchFilter(("y",)).apply(patch) == FilteredPatch(patch)


def test_binary_parts_are_kept_or_dropped_whole() -> None:
    binary = "diff --git a/b b/b\nindex 1..2 100644\nGIT binary patch\nliteral 1\nIc${MZ\n\n"
    assert PatchFilter(("b",)).apply(binary + PARTS[1]).text == PARTS[1]
    assert PatchFilter(("x.py",)).apply(binary + PARTS[1]).text == binary


@given(st.text(max_size=300))
def test_a_filter_that_matches_nothing_changes_no_byte_of_any_text(text: str) -> None:
    assert PatchFilter(("no/such/file",)).apply(text).text == text


@given(st.lists(st.sampled_from(PARTS)), st.sampled_from(["*.toml", "*.py", "tests/*"]))
def test_filtering_twice_is_filtering_once(parts: list[str], glob: str) -> None:
    once = PatchFilter((glob,)).apply("".join(parts))
    assert PatchFilter((glob,)).apply(once.text) == FilteredPatch(once.text)
