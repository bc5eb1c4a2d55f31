"""Resolve a `DATASET` argument: release pairs, a file of rows, a job file, or `module:attr`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from swe_rollout.cli.job_file import default_sandbox
from swe_rollout.cli.options import SandboxKind
from swe_rollout.cli.output import say
from swe_rollout.datasets.base import load
from swe_rollout.errors import UsageError
from swe_rollout.extension import import_file
from swe_rollout.spec.dataset import Dataset, ReleasePairsDataset, SwebenchDataset
from swe_rollout.spec.load import load_job
from swe_rollout.spec.model import REFERENCE, Use
from swe_rollout.spec.sandbox import SandboxSpec
from swe_rollout.types.instance import Instance


@dataclass(frozen=True, slots=True)
class NamedDataset:
    """A dataset, the folder where its relative paths start, and settings from its job file."""

    dataset: Dataset
    base_dir: Path
    sandbox: SandboxSpec | None = None
    log_parser: Use | None = None

    async def load(self) -> tuple[Instance, ...]:
        """Load the dataset's instances, and report skipped rows on stderr."""
        loaded = await load(self.dataset, base_dir=self.base_dir, on_progress=say)
        for problem in loaded.problems:
            say(f"skipped: {problem}")
        for note in loaded.notes:
            say(note)
        return loaded.instances

    def sandbox_of(self, kind: SandboxKind | None) -> SandboxSpec:
        """Return the spec for sandboxes of this kind, or the job file's, or local ones."""
        chosen = default_sandbox(kind) if kind else self.sandbox
        return chosen or default_sandbox(SandboxKind.LOCAL)


def import_files(paths: Iterable[Path] | None) -> None:
    """Import the files of `--with`, before their extensions are looked up."""
    for path in paths or ():
        import_file(path.absolute())


def named_dataset(
    name: str,
    *,
    include: Sequence[str] = (),
    skip_bad_rows: bool = False,
    with_files: Iterable[Path] | None = None,
) -> NamedDataset:
    """Return the dataset that `name` refers to. Raises SpecError for an invalid job file."""
    import_files(with_files)
    found = _named(name)
    changes: dict[str, object] = {}
    if include:
        changes["include"] = tuple(include)
    if skip_bad_rows:
        changes["skip_bad_rows"] = True
    return replace(found, dataset=found.dataset.model_copy(update=changes))


def _named(name: str) -> NamedDataset:
    if name == "release-pairs":
        return NamedDataset(Dataset(release_pairs=ReleasePairsDataset()), Path.cwd())
    if name.endswith((".yaml", ".yml")):
        spec, folder = load_job(Path(name)).spec, Path(name).absolute().parent
        return NamedDataset(spec.dataset, folder, spec.sandbox, spec.grading.log_parser)
    if Path(name, "plan.json").is_file():
        raise UsageError(
            f"{name} is a job with its results, and no dataset",
            fix="name the job's file, such as job.yaml, or a file of rows",
        )
    if ":" in name and re.match(REFERENCE, name):
        return NamedDataset(Dataset(source=Use(use=name)), Path.cwd())
    return NamedDataset(Dataset(swebench=SwebenchDataset(uri=name)), Path.cwd())
