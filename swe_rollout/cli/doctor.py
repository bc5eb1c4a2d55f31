"""`doctor`: check this machine's prerequisites."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from swe_rollout.cli.options import Form, OutputFormat, option

ProbedImage = Annotated[
    str | None, option("--image", help="Also check a sandbox pod of this image from inside.")
]

Clean = Annotated[
    bool, typer.Option("--clean", help="Remove what dead jobs and processes have left.")
]

MISSING_PREREQUISITE = 3


def doctor(
    image: ProbedImage = None,
    clean: Clean = False,  # noqa: FBT002 - a flag of the command line
    output: Form = OutputFormat.TABLE,
) -> None:
    """Check this machine: one line per check, with a fix where something is missing.

    With --image, start a sandbox pod and check its isolation from inside, the only place that shows
    whether the cluster enforces NetworkPolicy. Exit 3 when not even local sandboxes can run;
    anything else missing is only reported.

    Leftovers are counted: folders, processes and control groups of local sandboxes whose process
    was killed, and orphaned pods. --clean removes them, but never anything that belongs to a
    running process, an existing job or another user.

    swe-rollout doctor

    swe-rollout doctor --clean

    swe-rollout doctor -o json
    """
    from swe_rollout.cli.doctor_checks import CheckStatus, Tier, examine, report
    from swe_rollout.cli.output import write_data, write_lines

    checks = asyncio.run(examine(image=image, cleans=clean))
    if output.is_data:
        write_data({"checks": [check.to_record() for check in checks]}, output)
    else:
        write_lines(report(checks))
    if any(check.tier is Tier.LOCAL and check.status is CheckStatus.FAIL for check in checks):
        raise typer.Exit(MISSING_PREREQUISITE)
