"""`validate`: check that the tasks of a dataset can be graded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.options import (
    DatasetName,
    Form,
    Globs,
    OutputFormat,
    SandboxChoice,
    SandboxKind,
    SkipBadRows,
    WithFiles,
    option,
)
from swe_rollout.cli.output import say, write_data, write_table
from swe_rollout.errors import UsageError
from swe_rollout.grading.odds import shown
from swe_rollout.text.escaping import one_line

if TYPE_CHECKING:
    from swe_rollout.cli.dataset_argument import NamedDataset
    from swe_rollout.grading.validate import Validation
    from swe_rollout.spec.sandbox import CheckoutSpec, SandboxSpec
    from swe_rollout.types.instance import Instance
    from swe_rollout.types.verdict import Verdict

_TAIL_LINES = 15
_FIRST = 5

Parallelism = Annotated[int, option(min=1, max=1000, help="Instances to check concurrently.")]
InstanceIds = Annotated[
    list[str] | None, option("--instance", metavar="ID", help="Select one instance. Repeatable.")
]
Workdir = Annotated[
    Path | None,
    option(
        metavar="DIR",
        help="The task's repository, checked out here, in place of its image. Takes --python.",
    ),
]
Python = Annotated[
    Path | None,
    option(metavar="FILE", help="With --workdir: the Python that runs its tests, VENV/bin/python."),
]
PatchFile = Annotated[
    Path | None, option(metavar="FILE", help="Grade this diff too; exit 1 when it fails.")
]


def validate(
    dataset: DatasetName,
    sandbox: SandboxChoice = None,
    include: Globs = None,
    instance: InstanceIds = None,
    *,
    workdir: Workdir = None,
    python: Python = None,
    patch: PatchFile = None,
    with_files: WithFiles = None,
    skip_bad_rows: SkipBadRows = False,
    parallelism: Parallelism = 2,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Check that a dataset can be graded: the gold patch resolves each instance, no patch does not.

    WATCHED counts the tests to fix whose forgery is noticed, ODDS are those of guessing what they
    expect (docs/explanation/grading.md). Needs no model. Exit 1 when an instance fails the check.

    swe-rollout validate release-pairs

    swe-rollout validate rows.jsonl --include 'django__*' -o json

    swe-rollout validate rows.jsonl --workdir flask --python venv/bin/python
    """
    from swe_rollout.cli.dataset_argument import named_dataset

    wanted = [*(include or ()), *(instance or ())]
    named = named_dataset(
        dataset, include=wanted, skip_bad_rows=skip_bad_rows, with_files=with_files
    )
    chosen = _sandbox(named, sandbox, workdir, python)
    diff = None if patch is None else _read_patch(patch)
    checking = _validate(named, chosen, workdir=workdir, diff=diff, parallelism=parallelism)
    results = run_async(checking, on_note=say)
    if output.is_data:
        write_data({"instances": [_record(each) for each in results]}, output)
    else:
        header = [
            "INSTANCE",
            "GOLD",
            "EMPTY",
            "WATCHED",
            "ODDS",
            *(["PATCH"] if patch else []),
            "CHECK",
        ]
        write_table(header, [_row(each) for each in results], output)
    if any(each.problem for each in results):
        raise typer.Exit(1)


def _sandbox(
    named: NamedDataset, kind: SandboxKind | None, workdir: Path | None, python: Path | None
) -> SandboxSpec:
    from swe_rollout.spec.sandbox import LocalSandbox, SandboxSpec

    chosen = named.sandbox_of(kind)
    if workdir is None and python is None:
        return chosen
    checkout = _checkout(workdir, python)
    if kind not in (None, SandboxKind.LOCAL):
        raise UsageError(
            "--workdir needs sandboxes on this machine", fix=f"leave --sandbox {kind} out"
        )
    local = chosen.local or LocalSandbox()
    return SandboxSpec(local=local.model_copy(update={"checkout": checkout}))


def _checkout(workdir: Path | None, python: Path | None) -> CheckoutSpec:
    from swe_rollout.spec.sandbox import CheckoutSpec

    if workdir is None or python is None:
        raise UsageError(
            "--workdir and --python go together",
            fix="name both the checked-out repository and the Python that runs its tests",
        )
    return CheckoutSpec(workdir=str(workdir.absolute()), python=str(python.absolute()))


def _read_patch(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(f"{path} can't be read", why=str(error), fix="name a diff") from error


async def _validate(
    named: NamedDataset,
    sandbox: SandboxSpec,
    *,
    workdir: Path | None,
    diff: str | None,
    parallelism: int,
) -> tuple[Validation, ...]:
    from swe_rollout.grading.grader import Grader
    from swe_rollout.grading.validate import validate_dataset
    from swe_rollout.worker.sandboxes import SandboxSetup, of_checkout, open_sandboxes

    def report(result: Validation) -> None:
        say(f"{result.instance_id}: gold {result.gold.status}, empty {result.empty.status}")
        if not result.gold.resolved:
            _explain("gold", result.gold)
        if passing := result.passing_before:
            count = f"{len(passing)} of {len(result.empty.report.fail_to_pass)}"
            names = ", ".join(map(one_line, passing[:_FIRST])) + (", …" if passing[_FIRST:] else "")
            say(f"  empty: {count} tests to fix pass without a fix: {names}")
        if result.patch is not None and not result.patch.resolved:
            _explain("the patch", result.patch)

    instances: Sequence[Instance] = await named.load()
    if workdir is not None:
        instances = of_checkout(instances, workdir)
    async with AsyncExitStack() as stack:
        setup = SandboxSetup(instances, "validate", say, harmless=diff is None)
        provider = open_sandboxes(sandbox, setup, stack)
        grader = Grader(provider, log_parser=named.log_parser)
        return await validate_dataset(
            instances, grader, parallelism=parallelism, on_result=report, diff=diff
        )


def _explain(what: str, verdict: Verdict) -> None:
    """Explain on stderr why a patch did not resolve a task as expected."""
    for kind, tests in (
        ("to fix", verdict.report.fail_to_pass),
        ("to keep", verdict.report.pass_to_pass),
    ):
        missed = [f"{name} {status}" for name, status in tests.items() if status != "PASSED"]
        if missed:
            say(f"  {what}: {len(missed)} of {len(tests)} tests {kind} did not pass: {missed[0]}")
    for finding in verdict.integrity:
        say(f"  {what}: {finding}")
    for line in verdict.log_tail.splitlines()[-_TAIL_LINES:]:
        say(f"  | {line}")


def _record(result: Validation) -> dict[str, object]:
    record: dict[str, object] = {
        "instance_id": result.instance_id,
        "gold": result.gold.status.value,
        "empty": result.empty.status.value,
        "check": result.problem or "ok",
        "passing_without_fix": list(result.passing_before),
        "copies": list(result.copies),
        "watched": result.watched,
        "odds": result.odds,
        "findings": list(result.gold.integrity),
    }
    if result.patch is not None:
        record["patch"] = {
            "status": result.patch.status.value,
            "findings": list(result.patch.integrity),
            "fail_to_pass": result.patch.report.fail_to_pass,
            "pass_to_pass": result.patch.report.pass_to_pass,
        }
    return record


def _row(result: Validation) -> list[str]:
    patch = [] if result.patch is None else [result.patch.status.value]
    known = [result.instance_id, result.gold.status.value, result.empty.status.value]
    odds = shown(result.odds) if result.odds < 1 else "unproven"
    return [*known, _watched(result), odds, *patch, result.problem or "ok"]


def _watched(result: Validation) -> str:
    """Return how many of the tests to fix a blind run tells from forgeries."""
    return f"{result.watched}/{len(result.gold.report.fail_to_pass)}"
