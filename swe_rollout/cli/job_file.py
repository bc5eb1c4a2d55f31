"""Apply command-line options to a job file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.files import writing
from swe_rollout.cli.options import SandboxKind
from swe_rollout.cli.output import say, write_lines
from swe_rollout.errors import UsageError
from swe_rollout.text.escaping import one_line
from swe_rollout.text.paths import expanded

if TYPE_CHECKING:
    from swe_rollout.spec.fields import SpecField
    from swe_rollout.spec.job import RolloutJob
    from swe_rollout.spec.load import Setting
    from swe_rollout.spec.sandbox import SandboxSpec


def overrides_of(
    sets: Sequence[str] | None, *, store: str | None, name: str | None, skip_bad_rows: bool
) -> list[str | Setting]:
    """Return the options as overrides. Raises UsageError for an empty one."""
    from swe_rollout.spec.load import Setting

    overrides: list[str | Setting] = [*(sets or ())]
    for option, path, value in (
        # Options start where the user is, and the file's fields where the file is.
        ("--store", ("spec", "store", "uri"), store and _from_here(store)),
        ("--name", ("metadata", "name"), name),
        ("--skip-bad-rows", ("spec", "dataset", "skipBadRows"), skip_bad_rows or None),
    ):
        if value is not None:
            _require_filled(option, str(value))
            overrides.append(Setting(option, path, value))
    return overrides


def _from_here(store: str) -> str:
    """Return the absolute form of a store's address that is a folder of this machine."""
    is_path = store.startswith("file://") or not re.match(r"\w+:", store)
    path = store.removeprefix("file://")
    return f"file://{expanded(path).absolute()}" if is_path and path.strip() else store


def _require_filled(option: str, value: str) -> None:
    if not value.strip():
        raise UsageError(
            f"{option} is empty",
            why="often a variable of the shell that is not set",
            fix=f"write a value behind {option}, or leave it out for that of the job's file",
        )


def in_sandbox(job: RolloutJob, kind: SandboxKind) -> RolloutJob:
    """Return the job with sandboxes of `kind`, as in its file or else with defaults."""
    if getattr(job.spec.sandbox, kind) is not None:
        return job
    return job.with_spec(sandbox=default_sandbox(kind))


def default_sandbox(kind: SandboxKind) -> SandboxSpec:
    """Return the spec of a sandbox of `kind` with all defaults."""
    from swe_rollout.spec.sandbox import SandboxSpec

    return SandboxSpec.model_validate({kind.value: {}})


_MOST_MEANT = 3
FieldPath = Annotated[
    str, typer.Argument(metavar="PATH", help="A field of a RolloutJob, such as spec.limits.")
]


def explain(path: FieldPath = "spec") -> None:
    """Explain a field of a RolloutJob: its meaning, type and default.

    swe-rollout explain spec.sampling

    swe-rollout explain spec.limits.turns
    """
    write_lines(explanation(path))


def explanation(path: str) -> Iterator[str]:
    """Yield the lines of `explain`. Raises UsageError for a path that does not exist."""
    from swe_rollout.spec.fields import all_fields, fields_in, fields_meant

    path = path.strip(" .")
    parts = tuple(path.split("."))
    if parts[0].lower() in ("rolloutjob", "rolloutjobs", "rj"):  # as in `kubectl explain`
        parts = parts[1:] or ("spec",)
    field = next((each for each in all_fields() if each.path == parts), None)
    if field is None:
        meant = [each.dotted for each in fields_meant(path)][: 1 if parts[1:] else _MOST_MEANT]
        fix = f"did you mean {' or '.join(meant)}?" if meant else "swe-rollout explain spec"
        raise UsageError(f"a RolloutJob has no field {one_line(path)}", fix=fix)
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


NewFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file to create; `-` is stdout.")]


def init(file: NewFile = Path("job.yaml")) -> None:
    """Write a commented job file that runs unchanged, without a model or a cluster.

    swe-rollout init

    swe-rollout init my-job.yaml
    """
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
