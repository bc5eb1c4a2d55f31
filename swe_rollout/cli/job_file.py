"""Apply command-line options to a job file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from swe_rollout.cli.options import SandboxKind
from swe_rollout.errors import UsageError

if TYPE_CHECKING:
    from swe_rollout.spec.job import RolloutJob
    from swe_rollout.spec.sandbox import SandboxSpec


def overrides_of(
    sets: Sequence[str] | None, *, store: str | None, name: str | None, skip_bad_rows: bool
) -> list[str]:
    """The options as overrides, in the form of `--set`; raises UsageError for an empty one."""
    for option, value in (("--store", store), ("--name", name)):
        if value is not None and not value.strip():
            raise UsageError(
                f"{option} is empty",
                why="often a variable of the shell that is not set",
                fix=f"write a value behind {option}, or leave it out for that of the job's file",
            )
    overrides = list(sets or [])
    if store is not None:
        overrides.append(f"spec.store.uri={json.dumps(store)}")
    if name is not None:
        overrides.append(f"metadata.name={json.dumps(name)}")
    if skip_bad_rows:
        overrides.append("spec.dataset.skipBadRows=true")
    return overrides


def in_sandbox(job: RolloutJob, kind: SandboxKind) -> RolloutJob:
    """The job with sandboxes of `kind`: as its file describes them, otherwise with defaults."""
    if getattr(job.spec.sandbox, kind) is not None:
        return job
    spec = job.spec.model_copy(update={"sandbox": default_sandbox(kind)})
    return job.model_copy(update={"spec": spec})


def default_sandbox(kind: SandboxKind) -> SandboxSpec:
    """A sandbox of `kind` with defaults throughout."""
    from swe_rollout.spec.sandbox import KodoSandbox, LocalSandbox, PodSandbox, SandboxSpec

    match kind:
        case SandboxKind.LOCAL:
            return SandboxSpec(local=LocalSandbox())
        case SandboxKind.POD:
            return SandboxSpec(pod=PodSandbox())
        case SandboxKind.KODO:
            return SandboxSpec(kodo=KodoSandbox())
