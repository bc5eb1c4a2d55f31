"""`explain`: the documentation of a job's fields, without a cluster or a browser."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from swe_rollout.spec.fields import SpecField

FieldPath = Annotated[
    str, typer.Argument(metavar="PATH", help="A field of a RolloutJob, such as spec.limits.")
]


def explain(path: FieldPath = "spec") -> None:
    """Explain a field of a RolloutJob: its meaning, type and default.

    swe-rollout explain spec.sampling

    swe-rollout explain spec.limits.turns
    """
    from swe_rollout.cli.output import write_lines

    write_lines(explanation(path))


def explanation(path: str) -> Iterator[str]:
    """The lines of `explain`; raises UsageError for a path that does not exist."""
    from swe_rollout.errors import UsageError
    from swe_rollout.spec.fields import all_fields, fields_in

    parts = tuple(path.strip(".").split("."))
    if parts[0].lower() in ("rolloutjob", "rolloutjobs", "rj"):  # as in `kubectl explain`
        parts = parts[1:] or ("spec",)
    field = next((each for each in all_fields() if each.path == parts), None)
    if field is None:
        named = [each for each in all_fields() if each.name.lower() == parts[-1].lower()]
        exact = [each for each in named if each.dotted.lower() == ".".join(parts).lower()]
        candidates = ", ".join(each.dotted for each in exact or named)
        close = get_close_matches(path, [each.dotted for each in all_fields()], n=1)
        candidates = candidates or "".join(close)
        fix = f"did you mean {candidates}?" if candidates else "swe-rollout explain spec"
        raise UsageError(f"a RolloutJob has no field {path}", fix=fix)
    yield f"{field.dotted} <{field.type}>{_presence(field)}"
    yield ""
    yield f"    {field.doc}"
    inside = fields_in(parts)
    if inside:
        yield ""
        yield "FIELDS"
    for each in inside:
        yield f"  {each.name} <{each.type}>{_presence(each)}"
        yield f"    {each.doc}"


def _presence(field: SpecField) -> str:
    if field.required:
        return " required"
    return f" default {field.default}" if field.default else ""
