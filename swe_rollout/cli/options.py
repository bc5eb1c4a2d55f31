"""Options that several verbs share, and the words they take. Light: `--help` imports it."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

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
    str, typer.Argument(metavar="JOB", help="A job in a store: runs/demo, s3://bucket/runs/demo.")
]
Globs = Annotated[
    list[str] | None,
    option("--include", metavar="GLOB", help="Instance ids to take. Repeats."),
]
SkipBadRows = Annotated[bool, option("--skip-bad-rows", help="Leave out rows that can't be read.")]
