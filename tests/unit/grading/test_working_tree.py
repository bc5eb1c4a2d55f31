"""The test patch of a blind run."""

from __future__ import annotations

from swe_rollout.grading.working_tree import replaced_files
from swe_rollout.sandbox.patch_text import file_diff


def test_a_file_that_a_test_patch_changes_twice_is_replaced_once() -> None:
    other = file_diff("b", "1\n", "2\n")
    twice = file_diff("a", "x\n", "y\n") + file_diff("a", "y\n", "z\n")
    replaced = replaced_files(twice + other, {"a": "blind\n"}, {"a": "x\n"})
    assert replaced == file_diff("a", "x\n", "blind\n") + other
