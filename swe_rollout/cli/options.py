"""Options and arguments that several verbs share. Imported by `--help`, so it stays light."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from swe_rollout.errors import SweRolloutError

LOCAL_RUNS = "runs"
"""The default store folder for jobs on this machine."""
_PLAN = "plan.json"
_MOST_OFFERED = 2000
_COMPLETION_S = 2.0
"""How long completion waits for a cluster before it offers nothing."""

option = partial(typer.Option, show_envvar=False)
"""A typer option that does not show its environment variable: the epilog explains the rule."""


class OutputFormat(StrEnum):
    """Format of the results on stdout."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def is_data(self) -> bool:
        """Whether the format is for programs: a single value with everything known."""
        return self in (OutputFormat.JSON, OutputFormat.YAML)


class DisplayKind(StrEnum):
    """Progress display on stderr; auto is rich on a terminal and plain elsewhere."""

    AUTO = "auto"
    RICH = "rich"
    PLAIN = "plain"
    NONE = "none"


class LogFormat(StrEnum):
    """Format of log lines."""

    LOGFMT = "logfmt"
    JSON = "json"


class SandboxKind(StrEnum):
    """Sandbox back ends; the names of the variants of `spec.sandbox`."""

    LOCAL = "local"
    POD = "pod"
    KODO = "kodo"


def complete_job_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the namespace's jobs that start with `incomplete`."""
    if "/" in incomplete or not names_cluster():
        return []
    with suppress(SweRolloutError, TimeoutError):
        names = asyncio.run(_list_names(ctx.params.get("namespace"), ctx.params.get("context")))
        return [name for name in names if name.startswith(incomplete)]
    return []


def names_cluster() -> bool:
    """Whether this machine has a cluster: through a kubeconfig, or as one of its pods."""
    named = os.environ.get("KUBECONFIG") or os.environ.get("KUBERNETES_SERVICE_HOST")
    return bool(named) or Path("~/.kube/config").expanduser().exists()


def complete_job(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return jobs that start with `incomplete`: in folders, such as runs/demo, or a cluster."""
    return [*_stored_jobs(incomplete), *complete_job_name(ctx, incomplete)]


def complete_address(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return jobs that start with `incomplete`, and the episodes of a job in a folder."""
    # After a slash a new part follows, even while it is still empty.
    parts = Path(f"{incomplete}_").parents
    job = next((part for part in parts if (part / _PLAN).is_file()), None)
    if job is None:
        return complete_job(ctx, incomplete)
    samples = (each.as_posix() for each in islice(job.glob("episodes/*/*"), _MOST_OFFERED))
    addresses = sorted(each.replace("/episodes/", "/", 1) for each in samples)
    return [each for each in addresses if each.startswith(incomplete)]


def _stored_jobs(incomplete: str) -> list[str]:
    """Return jobs in the typed folder or in `runs`, without contacting other machines."""
    folder = Path(incomplete.rpartition("/")[0] or ("/" if "/" in incomplete else LOCAL_RUNS))
    with suppress(OSError, ValueError):
        found = (
            each.parent.as_posix() for each in islice(folder.glob(f"*/{_PLAN}"), _MOST_OFFERED)
        )
        return sorted(each for each in found if each.startswith(incomplete))
    return []


async def _list_names(namespace: str | None, context: str | None) -> list[str]:
    from swe_rollout.launcher.remote import open_jobs

    async with asyncio.timeout(_COMPLETION_S), open_jobs(context) as jobs:
        return [job.name for job in await jobs.list_jobs(namespace or jobs.namespace)]


Form = Annotated[OutputFormat, option("--output", "-o", help="Format of the result.")]
SandboxChoice = Annotated[
    SandboxKind | None,
    option(help="Namespaces on this machine, Kubernetes pods, or kodo's containers."),
]
_stored_job = partial(
    typer.Argument,
    help="A job in a store (runs/demo, s3://bucket/demo) or on the cluster (demo, ns/demo).",
    autocompletion=complete_job,
)
JobAddress = Annotated[str, _stored_job(metavar="JOB")]
OptionalJobAddress = Annotated[str | None, _stored_job(metavar="JOB")]
JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="A job on the cluster: demo, ns/demo.", autocompletion=complete_job_name
    ),
]
Namespace = Annotated[
    str | None,
    option("--namespace", "-n", help="Namespace of the job. Default: the context's namespace."),
]
Context = Annotated[
    str | None, option(help="Context of the kubeconfig. Default: the current context.")
]
DatasetName = Annotated[
    str,
    typer.Argument(
        metavar="DATASET", help="release-pairs, a file of rows, a job.yaml, or module:attr."
    ),
]
Globs = Annotated[
    list[str] | None,
    option("--include", metavar="GLOB", help="Select instance ids. Repeatable."),
]
SkipBadRows = Annotated[bool, option("--skip-bad-rows", help="Skip rows that can't be read.")]
Overwrite = Annotated[bool, option("--overwrite", help="Replace the file if it exists.")]
File = Annotated[Path, typer.Argument(help="A RolloutJob, as YAML.", metavar="FILE")]
Join = Annotated[bool, option("--join", help="Take part where another process runs it.")]
StoreUri = Annotated[
    str | None, option(metavar="URI", help="Store for trajectories: file://… or s3://….")
]
Name = Annotated[str | None, option(help="Job name; overrides the file's.")]
Sets = Annotated[
    list[str] | None,
    option("--set", metavar="PATH=VALUE", help="Set a field: spec.samples=4. Repeatable."),
]
WithFiles = Annotated[
    list[Path] | None,
    option(
        "--with",
        metavar="FILE.py",
        help="A Python file of your own extensions, which travels with the job. Repeatable.",
    ),
]
Shown = Annotated[DisplayKind, option(help="Progress on stderr.")]
MetricsAt = Annotated[
    str, option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus there.")
]
StoredAddress = Annotated[
    str,
    typer.Argument(
        metavar="JOB|JOB/INSTANCE/SAMPLE",
        help="A job in a store or on the cluster, or one of its episodes.",
        autocompletion=complete_address,
    ),
]
OtherDatasetName = Annotated[
    str | None,
    option(
        "--dataset",
        metavar="DATASET",
        help="The tasks, where the job's own address of them does not work.",
    ),
]
SandboxCount = Annotated[int, option("--parallelism", min=1, max=1000, help="Sandboxes at a time.")]
