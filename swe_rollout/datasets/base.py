"""The door to all datasets: a spec's `dataset` becomes instances.

Which rows there are is decided by one module for each source; which of them are taken, here.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from swe_rollout.datasets import release_pairs, swebench
from swe_rollout.errors import DatasetError, InternalError, Problem
from swe_rollout.instance import Instance
from swe_rollout.spec.job import Dataset, ReleasePairsDataset, SwebenchDataset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class LoadedDataset:
    """The tasks of a job, and what was left out because it could not be read."""

    instances: tuple[Instance, ...]
    problems: tuple[Problem, ...] = ()
    """Empty unless the dataset says `skipBadRows`."""


async def load(
    dataset: Dataset, *, base_dir: Path, on_progress: Callable[[str], None]
) -> LoadedDataset:
    """The tasks that the spec asks for, in the source's order.

    `base_dir` is where relative paths start: the job file's folder. Raises DatasetError with every
    problem at once, and when no task is left.
    """
    found = await _load(dataset, base_dir=base_dir, on_progress=on_progress)
    instances = [result for result in found if isinstance(result, Instance)]
    problems = tuple(result for result in found if isinstance(result, Problem))
    if problems and not dataset.skip_bad_rows:
        raise DatasetError(
            f"{len(problems)} of {len(found)} rows can't be read",
            problems,
            fix="correct them, or leave them out with `--skip-bad-rows` (`skipBadRows: true`)",
        )
    return LoadedDataset(_chosen(dataset, instances, problems), problems)


async def _load(
    dataset: Dataset, *, base_dir: Path, on_progress: Callable[[str], None]
) -> Sequence[Instance | Problem]:
    match dataset.swebench, dataset.release_pairs:
        case SwebenchDataset() as rows, None:
            return await swebench.load(rows, base_dir=base_dir)
        case None, ReleasePairsDataset() as pairs:
            return await release_pairs.prepare(pairs.names, on_progress=on_progress)
        case _:
            raise InternalError("a dataset without exactly one source passed the spec's check")


def _chosen(
    dataset: Dataset, instances: Sequence[Instance], problems: tuple[Problem, ...]
) -> tuple[Instance, ...]:
    """What `include`, `exclude` and `slice` leave, applied in this order."""
    if not instances:
        raise DatasetError("the dataset has no readable row", problems)
    _check_include(dataset.include, [instance.instance_id for instance in instances])
    included = [
        instance
        for instance in instances
        if not dataset.include or _matches(instance, dataset.include)
    ]
    kept = [instance for instance in included if not _matches(instance, dataset.exclude)]
    left = tuple(kept[_slice(dataset.slice)])
    if not left:
        steps = (
            f"{len(instances)} tasks; include leaves {len(included)}, exclude {len(kept)}, "
            f"slice {dataset.slice or ':'} 0"
        )
        raise DatasetError(
            "no task is left",
            [Problem("dataset", "", steps)],
            fix="widen `include`, `exclude` or `slice`",
        )
    return left


def _matches(instance: Instance, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(instance.instance_id, pattern) for pattern in patterns)


def _check_include(patterns: Sequence[str], known: Sequence[str]) -> None:
    problems = [
        Problem("dataset.include", pattern, _no_match(pattern, known))
        for pattern in patterns
        if not any(fnmatchcase(instance_id, pattern) for instance_id in known)
    ]
    if problems:
        raise DatasetError("`include` names tasks that are not in the dataset", problems)


def _no_match(pattern: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(re.sub(r"[*?\[\]]", "", pattern), known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"matches none of {len(known)} tasks{hint}"


def _slice(text: str) -> slice:
    return (
        slice(*(int(part) if part else None for part in text.split(":"))) if text else slice(None)
    )
