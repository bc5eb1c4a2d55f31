"""`init`: a job file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NewFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file to create; `-` is stdout.")]


def init(file: NewFile = Path("job.yaml")) -> None:
    """Write a commented job file that runs unchanged, without a model or a cluster.

    swe-rollout init

    swe-rollout init my-job.yaml
    """
    from swe_rollout.cli.files import writing
    from swe_rollout.cli.output import say, write_lines
    from swe_rollout.errors import UsageError
    from swe_rollout.spec.template import template

    text = template()
    if file.is_dir():
        fix = f"name a file in it: swe-rollout init {file / 'job.yaml'}"
        raise UsageError(f"{file} is a folder", fix=fix)
    if str(file) == "-":
        write_lines(text.splitlines())
        return
    try:
        with writing(file), file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError as error:
        fix = f"swe-rollout init other.yaml, or remove {file}"
        raise UsageError(f"{file} already exists", fix=fix) from error
    write_lines([str(file)])
    say(f"run it with: swe-rollout run {file}")
