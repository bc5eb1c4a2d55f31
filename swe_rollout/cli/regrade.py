"""`regrade`: grade the patches of a stored job again, and report what changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.files import require_new, writing
from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.job_address import JobLocation
from swe_rollout.cli.options import (
    Context,
    Form,
    Namespace,
    OtherDatasetName,
    OutputFormat,
    Overwrite,
    SandboxChoice,
    SandboxCount,
    StoredAddress,
    WithFiles,
    option,
)
from swe_rollout.cli.output import say, write_data, write_lines, write_table
from swe_rollout.cli.stored_work import WorkOptions, open_work
from swe_rollout.errors import TaskError
from swe_rollout.text.paths import unused_name

if TYPE_CHECKING:
    from swe_rollout.types.instance import Instance
    from swe_rollout.types.trajectory import Trajectory
    from swe_rollout.worker.regrade import RegradeReport, Regrading

Times = Annotated[int, option("--times", "-k", min=1, max=1000, help="Gradings of each patch.")]
ReportFile = Annotated[
    Path | None, option("--output-file", "-O", help="A file for the report, as JSON.")
]


def regrade(
    address: StoredAddress,
    namespace: Namespace = None,
    context: Context = None,
    sandbox: SandboxChoice = None,
    *,
    times: Times = 1,
    dataset: OtherDatasetName = None,
    with_files: WithFiles = None,
    parallelism: SandboxCount = 2,
    output_file: ReportFile = None,
    overwrite: Overwrite = False,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Grade stored patches again, and report verdicts that change and tests that are flaky.

    Needs no model, and changes no record. On ^C, it reports what was graded so far. Exit 1 when a
    verdict changed or a grading failed.

    swe-rollout regrade runs/demo -k 5

    swe-rollout regrade runs/demo/sqlparse-0.5.2/0 -k 20 -O flaky.json
    """
    from swe_rollout.worker.regrade import RegradeReport

    if output_file is not None:
        output_file = require_new(output_file, overwrite=overwrite)
    report = RegradeReport(times)
    options = WorkOptions(sandbox, dataset, with_files or ())
    work = _regrade(address, JobLocation(namespace, context), options, parallelism, report)
    try:
        run_async(work, on_note=say)
    finally:
        # Do this even after ^C, because gradings take hours.
        if report.complete or report.found:
            _write(report, output_file, output)
    if report.changed or report.broken:
        raise typer.Exit(1)


async def _regrade(
    address: str,
    location: JobLocation,
    options: WorkOptions,
    parallelism: int,
    report: RegradeReport,
) -> None:
    from swe_rollout.grading.grader import Grader
    from swe_rollout.worker.regrade import Regrader, Regrading

    async with open_work(address, location, options) as work:
        spec = work.tasks.job.spec
        grading = spec.grading
        grader = Grader(
            work.sandboxes,
            timeout_s=grading.timeout_seconds,
            log_parser=grading.log_parser,
            integrity=grading.integrity,
            unproven=grading.unproven,
            partial=grading.credits_single_tests,
        )
        regrader = Regrader(grader, report.times, spec.retry)

        async def one(trajectory: Trajectory, task: Instance | TaskError) -> None:
            if isinstance(task, TaskError):
                result = Regrading(trajectory.episode, None, failures=(str(task),))
            else:
                result = await regrader.regrade(trajectory, task)
            report.found.append(result)
            say(f"{result.episode}: {_result(result)}")

        await work.on_each(one, parallelism=parallelism)
    report.complete = True


def _write(report: RegradeReport, path: Path | None, output: OutputFormat) -> None:
    if path is not None:
        _keep(report, path)
    if output.is_data:
        write_data(report.to_dict(), output)
    else:
        columns = ["EPISODE", "RECORDED", "AGAIN", "UNSTABLE TESTS#", "RESULT"]
        write_table(columns, [_row(each) for each in report.ordered], output)
        if path is not None:
            write_lines([str(path)])
    say(
        f"{len(report.found)} episodes: {report.changed} with another verdict, "
        f"{report.broken} with broken gradings"
    )
    if not report.complete:
        say("the report is not complete")


def _keep(report: RegradeReport, path: Path) -> None:
    part = unused_name(path)
    with writing(path):
        part.write_text(json.dumps(report.to_dict(), indent=2) + "\n", encoding="utf-8")
        part.replace(path)


def _row(found: Regrading) -> list[str]:
    again = ", ".join(
        f"{found.statuses.count(status)} {status}" for status in dict.fromkeys(found.statuses)
    )
    return [
        str(found.episode),
        found.recorded or "–",
        again or "–",
        str(len(found.unstable)),
        _result(found),
    ]


def _result(found: Regrading) -> str:
    if found.skipped:
        return f"skipped: {found.skipped}"
    if found.failures:
        return f"{len(found.failures)} gradings broke: {found.failures[0]}"
    if found.changed:
        return "another verdict"
    return f"{len(found.unstable)} unstable tests" if found.unstable else "same"
