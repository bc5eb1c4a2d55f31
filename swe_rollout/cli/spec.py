"""Shell: `explain` and `init`, the job's schema without a cluster and without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from swe_rollout.spec.fields import SpecField

FieldPath = Annotated[
    str, typer.Argument(metavar="PATH", help="A field of a RolloutJob, such as spec.limits.")
]
NewFile = Annotated[Path, typer.Argument(metavar="[FILE]", help="Where to write; `-` is stdout.")]


def explain(path: FieldPath = "spec") -> None:
    """Explain a field of a RolloutJob: what it means, its type, its default.

    swe-rollout explain spec.sampling

    swe-rollout explain spec.limits.turns
    """
    from swe_rollout.cli.output import write_lines

    write_lines(explanation(path))


def init(file: NewFile = Path("job.yaml")) -> None:
    """Write a commented job file that runs as it is, with no model and no cluster.

    swe-rollout init

    swe-rollout init my-job.yaml
    """
    from swe_rollout.cli.output import say, write_lines
    from swe_rollout.errors import UsageError
    from swe_rollout.spec.template import template

    text = template()
    if str(file) == "-":
        write_lines(text.splitlines())
        return
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError as error:
        fix = f"swe-rollout init other.yaml, or remove {file}"
        raise UsageError(f"{file} exists already", fix=fix) from error
    write_lines([str(file)])
    say(f"run it with: swe-rollout run {file}")


def explanation(path: str) -> Iterator[str]:
    """The lines of `explain`; raises UsageError for a path that no job has."""
    from swe_rollout.errors import UsageError
    from swe_rollout.spec.fields import all_fields, fields_in

    parts = tuple(path.strip(".").split("."))
    field = next((each for each in all_fields() if each.path == parts), None)
    if field is None:
        parents = ", ".join(each.dotted for each in all_fields() if each.name == parts[-1])
        fix = f"perhaps {parents}" if parents else "swe-rollout explain spec"
        raise UsageError(f"a RolloutJob has no field {path}", fix=fix)
    yield f"{field.dotted} <{field.type}>{_needs(field)}"
    yield ""
    yield f"    {field.doc}"
    inside = fields_in(parts)
    if inside:
        yield ""
        yield "FIELDS"
    for each in inside:
        yield f"  {each.name} <{each.type}>{_needs(each)}"
        yield f"    {each.doc}"


def _needs(field: SpecField) -> str:
    if field.required:
        return " required"
    return f" default {field.default}" if field.default else ""
