"""Options that several verbs share, and the words they take. Light: `--help` imports it."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from swe_rollout.cli.completion import job_names

option = partial(typer.Option, show_envvar=False)
"""An option. Each is also a variable, as the epilog says; naming it in every row is noise."""


class OutputFormat(StrEnum):
    """The form of results on stdout."""

    TABLE = "table"
    JSON = "json"


class DisplayKind(StrEnum):
    """How a run is shown on stderr; auto is rich on a terminal and plain elsewhere."""

    AUTO = "auto"
    RICH = "rich"
    PLAIN = "plain"
    NONE = "none"


class SandboxKind(StrEnum):
    """The sandboxes there are."""

    LOCAL = "local"
    POD = "pod"


Form = Annotated[OutputFormat, option("--output", "-o", help="The form of the result.")]
SandboxChoice = Annotated[
    SandboxKind | None, option(help="Namespaces on this machine, or Kubernetes pods.")
]
JobAddress = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="A job in a store (runs/demo, s3://bucket/demo) or on the cluster (demo, ns/demo).",
        autocompletion=job_names,
    ),
]
JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="A job on the cluster: demo, ns/demo.", autocompletion=job_names
    ),
]
Namespace = Annotated[
    str | None, option("--namespace", "-n", help="The job's; by default the context's.")
]
Context = Annotated[str | None, option(help="Of the kubeconfig; by default the current one.")]
Globs = Annotated[
    list[str] | None,
    option("--include", metavar="GLOB", help="Instance ids to take. Repeats."),
]
SkipBadRows = Annotated[bool, option("--skip-bad-rows", help="Leave out rows that can't be read.")]
File = Annotated[Path, typer.Argument(help="A RolloutJob, as YAML.", metavar="FILE")]
StoreUri = Annotated[
    str | None, option(metavar="URI", help="Where trajectories go: file://… or s3://….")
]
Name = Annotated[str | None, option(help="The job's name, instead of the file's.")]
Sets = Annotated[
    list[str] | None,
    option("--set", metavar="PATH=VALUE", help="A field: spec.samples=4. Repeats."),
]
Shown = Annotated[DisplayKind, option(help="How progress is shown, on stderr.")]
