"""The test patch of a blind run."""

from __future__ import annotations

from swe_rollout.grading.working_tree import replaced_files
from swe_rollout.sandbox.patch_text import file_diff, touched_paths


def test_a_file_that_a_test_patch_changes_twice_is_replaced_once() -> None:
    other = file_diff("b", "1\n", "2\n")
    twice = file_diff("a", "x\n", "y\n") + file_diff("a", "y\n", "z\n")
    replaced = replaced_files(twice + other, {"a": "blind\n"}, {"a": "x\n"})
    assert replaced == file_diff("a", "x\n", "blind\n") + other


def test_a_name_of_any_bytes_is_written_as_git_reads_it() -> None:
    part = file_diff('a\t"\udcff', None, "x\n")
    assert part.startswith('diff --git "a/a\\011\\042\\377" "b/a\\011\\042\\377"\n')
    assert touched_paths(part) == ('a\t"\udcff',)
