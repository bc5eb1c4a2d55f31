"""`harness install` and `harness ls`: agents that are programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from swe_rollout.cli.options import Form, OutputFormat, option
from swe_rollout.cli.output import say, write_lines, write_table
from swe_rollout.errors import UsageError

Name = Annotated[str, typer.Argument(metavar="NAME", help="One of `swe-rollout harness ls`.")]
To = Annotated[
    Path | None, option("--to", metavar="DIR", help="A new folder. Default: in the user's cache.")
]


def install(name: Name, *, to: To = None) -> None:
    """Install a ready harness from its vendor's own registry. Prints its folder.

    Jobs on this machine with `agent: {harness: NAME}` find it in the user's cache. For pods, make
    an image of a folder of your own: docs/how-to/gateway.md. Its licence is between you and its
    vendor. Needs npm, or for those in Python uv or pip.

    swe-rollout harness install codex

    swe-rollout harness install codex --to ./codex
    """
    from swe_rollout.worker import harnesses

    ready = harnesses.ready()
    if name not in ready:
        raise UsageError(f"there is no ready harness {name}", fix=f"name one of {', '.join(ready)}")
    folder = to or harnesses.folder_of(name)
    if to is not None or not folder.is_dir():
        say(f"installing {ready[name].package}: a minute or two")
        harnesses.install(name, folder)
    write_lines([str(folder)])


def ls(*, output: Form = OutputFormat.TABLE) -> None:
    """List the ready harnesses, their packages, and whether this machine has them.

    swe-rollout harness ls

    swe-rollout harness ls -o name
    """
    from swe_rollout.worker.harnesses import folder_of, ready

    rows = [
        [name, each.package, "yes" if folder_of(name).is_dir() else "no"]
        for name, each in ready().items()
    ]
    write_table(["NAME", "PACKAGE", "INSTALLED"], rows, output)
