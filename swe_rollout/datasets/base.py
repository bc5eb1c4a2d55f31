"""Load the instances of a job, given the `dataset` of its spec.

A source lists all tasks; this module chooses those that the job takes.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from swe_rollout.datasets import DATASETS
from swe_rollout.datasets.bad_rows import Quarantine
from swe_rollout.datasets.images import ImageRules
from swe_rollout.datasets.source import NamedSource
from swe_rollout.errors import DatasetError, InternalError, Problem
from swe_rollout.spec.dataset import Dataset, ReleasePairsDataset, SwebenchDataset
from swe_rollout.spec.model import Use
from swe_rollout.types.instance import Instance


@dataclass(frozen=True, slots=True)
class LoadedDataset:
    """The tasks of a job, and the problems of tasks that were left out."""

    instances: tuple[Instance, ...]
    problems: tuple[Problem, ...] = ()
    """Problems of skipped rows; empty unless the dataset has `skipBadRows`."""
    quarantined: Mapping[str, str] = field(default_factory=dict)
    """The ids of quarantined tasks, with the checks that they failed."""
    notes: tuple[str, ...] = ()
    """Messages about what the quarantine left out."""


async def load(
    dataset: Dataset, *, base_dir: Path, on_progress: Callable[[str], None]
) -> LoadedDataset:
    """Load the tasks that the spec asks for, in the source's order.

    Relative paths start at `base_dir`, the job file's folder. Raises ExtensionError when there is
    no such source, and DatasetError, with every problem at once, or when no task is left.
    """
    source = _source(dataset)
    results = await source.read(base_dir=base_dir, on_progress=on_progress)
    if dataset.images is not None:
        rules = await ImageRules.load(dataset.images, base_dir=base_dir)
        results = tuple(rules.applied(r) if isinstance(r, Instance) else r for r in results)
    instances = [result for result in results if isinstance(result, Instance)]
    problems = tuple(result for result in results if isinstance(result, Problem))
    if problems and not dataset.skip_bad_rows:
        raise DatasetError(
            f"{len(problems)} of {len(results)} tasks can't be read",
            problems,
            fix="correct them (docs/how-to/datasets.md has the fields of a row), or leave them out "
            "with `--skip-bad-rows` (`skipBadRows: true`)",
        )
    if not instances:
        raise DatasetError(f"the dataset source {source.name} has no usable task", problems)
    chosen = _chosen(dataset, instances)
    if dataset.quarantine is None:
        return LoadedDataset(chosen, problems)
    quarantine = await Quarantine.load(dataset.quarantine, base_dir=base_dir)
    found = await asyncio.to_thread(quarantine.sort, chosen)
    notes = tuple(found.notes(dataset.quarantine))
    if not found.kept:
        problems = tuple(Problem("dataset.quarantine", "", note) for note in notes)
        raise _none_left(problems, "take other tasks, or another quarantine file")
    return LoadedDataset(found.kept, problems, found.left_out, notes)


def _source(dataset: Dataset) -> NamedSource:
    """Load the source whose variant is set."""
    parameters: Mapping[str, object]
    match dataset.swebench, dataset.release_pairs, dataset.source:
        case SwebenchDataset() as rows, None, None:
            name = "swebench"
            parameters = {"uri": rows.uri, "format": rows.format.value, "split": rows.split}
        case None, ReleasePairsDataset() as pairs, None:
            name, parameters = "release_pairs", {"names": pairs.names}
        case None, None, Use() as own:
            name, parameters = own.use, own.with_
        case _:
            raise InternalError("a dataset without exactly one source passed the spec's check")
    return NamedSource(name, DATASETS.load(name, parameters))


def _chosen(dataset: Dataset, instances: Sequence[Instance]) -> tuple[Instance, ...]:
    """Apply `include`, `exclude` and `slice`, in this order."""
    _check_include(dataset.include, [instance.instance_id for instance in instances])
    included = [
        instance
        for instance in instances
        if not dataset.include or _matches(instance, dataset.include)
    ]
    kept = [instance for instance in included if not _matches(instance, dataset.exclude)]
    left = tuple(kept[_slice(dataset.slice)])
    if not left:
        taken = f"include leaves {len(included)}, exclude {len(kept)}"
        steps = f"{len(instances)} tasks; {taken}, slice {dataset.slice or ':'} 0"
        raise _none_left([Problem("dataset", "", steps)], "widen `include`, `exclude` or `slice`")
    return left


def _none_left(problems: Sequence[Problem], fix: str) -> DatasetError:
    return DatasetError("no task is left", problems, fix=fix)


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
