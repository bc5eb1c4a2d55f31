"""The row formats that `swebench` reads, and how to tell them apart by their columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from swe_rollout.datasets import swebench_row
from swe_rollout.datasets.formats import (
    multi_swe_bench,
    r2e_gym,
    swe_bench_live,
    swe_bench_pro,
    swe_rebench,
    swe_smith,
)
from swe_rollout.datasets.row_fields import Columns
from swe_rollout.types.instance import Instance

RowFormat: TypeAlias = Callable[[Columns], Instance]
"""Makes the instance of a row. Raises WrongRowError, which names every wrong field."""

FORMATS: dict[str, RowFormat] = {
    "swe-bench": swebench_row.instance,
    "swe-smith": swe_smith.instance,
    "r2e-gym": r2e_gym.instance,
    "swe-rebench": swe_rebench.instance,
    "swe-rebench-v2": swe_rebench.instance_v2,
    "multi-swe-bench": multi_swe_bench.instance,
    "swe-bench-pro": swe_bench_pro.instance,
    "swe-bench-live": swe_bench_live.instance,
}
_SIGNS: tuple[tuple[str, frozenset[str]], ...] = (
    ("multi-swe-bench", frozenset({"org", "fix_patch"})),
    ("r2e-gym", frozenset({"docker_image", "expected_output_json"})),
    ("swe-bench-pro", frozenset({"selected_test_files_to_run"})),
    ("swe-bench-pro", frozenset({"before_repo_set_cmd"})),
    ("swe-rebench-v2", frozenset({"install_config", "language"})),
    ("swe-rebench", frozenset({"install_config"})),
    ("swe-bench-live", frozenset({"test_cmds"})),
    ("swe-bench-live", frozenset({"commit_urls", "all_hints_text"})),
)
"""Sets of columns, each of which occurs together only in rows of that format."""


def recognised(columns: Columns) -> str:
    """Return the format that a row's columns indicate, else SWE-bench's."""
    # Rows with their own script or commands are in SWE-bench's format, whatever else they hold.
    if "eval_script" in columns:
        return "swe-bench"
    match columns.get("repo"):
        case str(repo) if repo.startswith(swe_smith.MIRRORS):
            return "swe-smith"
        case _ if "test_cmd" in columns:
            return "swe-bench"
        case _:
            found = (name for name, signs in _SIGNS if columns.keys() >= signs)
            return next(found, "swe-bench")
