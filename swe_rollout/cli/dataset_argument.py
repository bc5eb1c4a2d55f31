"""What a `DATASET` argument names: release pairs, a file of rows, or the dataset of a job file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from swe_rollout.spec.job import Dataset, ReleasePairsDataset, SwebenchDataset
from swe_rollout.spec.load import load_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swe_rollout.spec.job import SandboxSpec

RELEASE_PAIRS = "release-pairs"


@dataclass(frozen=True, slots=True)
class NamedDataset:
    """A dataset, where its relative paths start, and the sandbox its job file wants."""

    dataset: Dataset
    base_dir: Path
    sandbox: SandboxSpec | None = None


def named_dataset(
    name: str, *, include: Sequence[str] = (), skip_bad_rows: bool = False
) -> NamedDataset:
    """What `name` stands for; raises SpecError for a job file that is not valid."""
    found = _named(name)
    changes: dict[str, object] = {}
    if include:
        changes["include"] = tuple(include)
    if skip_bad_rows:
        changes["skip_bad_rows"] = True
    dataset = found.dataset.model_copy(update=changes)
    return NamedDataset(dataset, found.base_dir, found.sandbox)


def _named(name: str) -> NamedDataset:
    if name == RELEASE_PAIRS:
        return NamedDataset(Dataset(release_pairs=ReleasePairsDataset()), Path.cwd())
    if name.endswith((".yaml", ".yml")):
        job = load_job(Path(name))
        return NamedDataset(job.spec.dataset, Path(name).absolute().parent, job.spec.sandbox)
    return NamedDataset(Dataset(swebench=SwebenchDataset(uri=name)), Path.cwd())
