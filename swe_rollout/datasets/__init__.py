"""Dataset sources by name: `DATASETS` has the built-in sources and those of users.

`base.load` makes the tasks of a job from any of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TypeAlias

from swe_rollout.errors import Problem
from swe_rollout.extension import ExtensionPoint
from swe_rollout.types.instance import Instance

Tasks: TypeAlias = Iterable[Instance | Problem]
"""Instances in a fixed order, with a problem in place of each one that can't be made."""
DatasetSource: TypeAlias = Callable[
    ..., Tasks | AsyncIterable[Instance | Problem] | Awaitable[Tasks]
]
"""Returns the tasks. If it has parameters with these names, it gets `base_dir`, where relative
paths start, and `on_progress`, which shows a line to people."""

DATASETS: ExtensionPoint[DatasetSource] = ExtensionPoint(
    "dataset source",
    group="swe_rollout.datasets",
    accepts=callable,
    expected="a function that yields instances",
    builtin={
        "swebench": "swe_rollout.datasets.swebench:load",
        "release_pairs": "swe_rollout.datasets.release_pairs:load",
        "harbor": "swe_rollout.datasets.harbor_task:load",
    },
)
