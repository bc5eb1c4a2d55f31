"""`audit`: find the rows of a dataset that lie, and write them into a quarantine file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.files import writing
from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.options import (
    DatasetName,
    Form,
    Globs,
    OutputFormat,
    SandboxChoice,
    SkipBadRows,
    WithFiles,
    option,
)
from swe_rollout.cli.output import say, write_data, write_table
from swe_rollout.grading.odds import shown
from swe_rollout.text.formatting import format_duration

if TYPE_CHECKING:
    from swe_rollout.cli.dataset_argument import NamedDataset
    from swe_rollout.grading.audit import Audit, NotAudited
    from swe_rollout.grading.audit_journal import AuditJournal, Key
    from swe_rollout.spec.sandbox import SandboxSpec

Runs = Annotated[int, option("--runs", "-k", min=1, max=100, help="Runs of each gold patch.")]
Rows = Annotated[int, option(min=1, max=1000, help="Rows to audit concurrently.")]
Quarantine = Annotated[
    Path,
    option(
        "--output-file",
        "--out",
        "-O",
        help="The quarantine file. Results are kept beside it, in NAME.audited.",
    ),
]


def audit(
    dataset: DatasetName,
    sandbox: SandboxChoice = None,
    include: Globs = None,
    *,
    runs: Runs = 3,
    output_file: Quarantine = Path("quarantine.jsonl"),
    with_files: WithFiles = None,
    skip_bad_rows: SkipBadRows = False,
    parallelism: Rows = 2,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Find rows that lie: the gold patch must resolve each every time, and nothing wrong may.

    Wrong are the untouched base, an empty diff, and patches generated for the row: they delete its
    tests, make the functions that the gold patch changes return None, or skip tests. Failing rows
    are written to the quarantine file with the evidence; a job excludes them with
    `dataset.quarantine`. ODDS: of guessing what tests expect. An interrupted audit resumes where it
    stopped. Needs no model. Exit 1 when a row is bad or could not be audited.

    swe-rollout audit rows.jsonl

    swe-rollout audit job.yaml --runs 10 --out bad.jsonl -o json
    """
    from swe_rollout.cli.dataset_argument import named_dataset
    from swe_rollout.grading.audit_journal import AuditJournal

    named = named_dataset(
        dataset, include=include or (), skip_bad_rows=skip_bad_rows, with_files=with_files
    )
    # Rows in quarantine are audited again.
    every = replace(named, dataset=named.dataset.model_copy(update={"quarantine": None}))
    report = _Report(AuditJournal(output_file, runs))
    work = _audit(every, named.sandbox_of(sandbox), report, parallelism=parallelism)
    try:
        run_async(work, on_note=say)
    finally:
        # Do this even after ^C, because audits take hours.
        if report.is_open:
            report.write(output)
    if report.bad or report.not_audited:
        raise typer.Exit(1)


@dataclass
class _Report:
    """The results so far for the rows of one audit."""

    journal: AuditJournal
    wanted: frozenset[Key] = frozenset()
    """All rows of the audit."""
    not_audited: tuple[NotAudited, ...] = ()
    is_open: bool = False
    bad: int = 0

    def write(self, output: OutputFormat) -> None:
        """Write the quarantine file, and print the results."""
        with writing(self.journal.quarantine):
            self.bad = self.journal.write_quarantine(self.wanted)
        if output.is_data:
            write_data(
                {
                    "instances": [_record(each) for each in self._results()],
                    "not_audited": [
                        {"instance_id": each.instance_id, "why": each.why}
                        for each in self.not_audited
                    ],
                    "quarantine": str(self.journal.quarantine),
                },
                output,
            )
        else:
            columns = ["INSTANCE", "GOLD", "TIME#", "FLAKY#", "WRONG", "ODDS", "CHECK"]
            rows = [_row(each) for each in self._results()]
            rows += [[e.instance_id, *"–––––", _unknown(e)] for e in self.not_audited]
            write_table(columns, rows, output)
        results = list(self._results())
        done, unproven = len(results), sum(bool(each.unproven) for each in results)
        say(
            f"{done} of {len(self.wanted)} rows audited: {self.bad} bad, in "
            f"{self.journal.quarantine}; {unproven} that a forgery could resolve, too; "
            f"{len(self.not_audited)} not audited"
        )
        if done + len(self.not_audited) < len(self.wanted):
            say("the audit is not complete: run it again to go on")

    def _results(self) -> Iterator[Audit]:
        found = self.journal.results()
        return (each for each in found if (each.instance_id, each.digest) in self.wanted)


async def _audit(
    named: NamedDataset, sandbox: SandboxSpec, report: _Report, *, parallelism: int
) -> None:
    from swe_rollout.grading.audit import NotAudited, audit_dataset
    from swe_rollout.grading.audit_journal import keys_of
    from swe_rollout.grading.grader import Grader
    from swe_rollout.worker.sandboxes import SandboxSetup, open_sandboxes

    instances = await named.load()
    with writing(report.journal.path):
        done = report.journal.open()
    report.wanted, report.is_open = keys_of(instances), True
    left = [each for each in instances if (each.instance_id, each.digest) not in done]
    if len(left) < len(instances):
        say(
            f"{len(instances) - len(left)} of {len(instances)} rows are in {report.journal.path}; "
            "delete it to audit them again"
        )
    finished = len(instances) - len(left)

    def keep(result: Audit | NotAudited) -> None:
        nonlocal finished
        finished += 1
        if isinstance(result, NotAudited):
            report.not_audited += (result,)
        else:
            with writing(report.journal.path):
                report.journal.add(result)
        check = _unknown(result) if isinstance(result, NotAudited) else _check(result)
        say(f"[{finished}/{len(instances)}] {result.instance_id}: {check}")

    if not left:
        return
    async with AsyncExitStack() as stack:
        setup = SandboxSetup(left, "audit", say, harmless=True)
        provider = open_sandboxes(sandbox, setup, stack)
        grader = Grader(provider, log_parser=named.log_parser)
        await audit_dataset(
            left, grader, runs=report.journal.runs, parallelism=parallelism, on_result=keep
        )


def _row(result: Audit) -> list[str]:
    from swe_rollout.types.verdict import VerdictStatus

    resolved = VerdictStatus.RESOLVED
    gold = result.verdicts.get("gold", ())
    wrong = result.verdicts.keys() - {"gold"}
    failed = wrong & {each.check for each in result.findings}
    return [
        result.instance_id,
        f"{gold.count(resolved)}/{len(gold)}",
        format_duration(result.gold.median_s if result.gold else None),
        str(len(result.flaky)),
        f"{len(failed)}/{len(wrong)}",
        "–" if result.odds is None else shown(result.odds) if result.odds < 1 else "unproven",
        _check(result),
    ]


def _check(result: Audit) -> str:
    if not result.findings:
        return "ok"
    more = f", and {len(result.findings) - 1} more" if result.findings[1:] else ""
    return f"bad: {result.findings[0].message}{more}"


def _unknown(result: NotAudited) -> str:
    return f"not audited: {result.why}"


def _record(result: Audit) -> dict[str, object]:
    gold = result.gold
    return {
        "instance_id": result.instance_id,
        "digest": result.digest,
        "bad": result.is_bad,
        "verdicts": {check: list(found) for check, found in result.verdicts.items()},
        "not_applicable": result.not_applicable,
        "findings": [
            {"check": each.check, "message": each.message, "statuses": each.statuses}
            for each in result.findings
        ],
        "flaky": list(result.flaky),
        "odds": result.odds,
        "unproven": result.unproven,
        "gold_seconds": gold and {"min": gold.min_s, "median": gold.median_s, "max": gold.max_s},
    }
