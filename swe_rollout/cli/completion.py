"""Shell completion: job names of the cluster, and the whole command line for kubectl's plugin.

A completion that can't be had in two seconds is none: a shell must not wait for a cluster.
"""

from __future__ import annotations

import asyncio
import io
import os
import shlex
import sys
from contextlib import redirect_stdout, suppress

import typer  # noqa: TC002 - typer itself reads the annotation of `ctx`

_PATIENCE_S = 2.0
_FILES_TOO, _NO_FILES = ":0", ":4"
"""What kubectl (cobra) reads after the words: offer files when there are none, or never."""


def job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The jobs of the namespace that begin so."""
    from swe_rollout.errors import SweRolloutError

    if "/" in incomplete:
        return []
    with suppress(SweRolloutError, TimeoutError):
        names = asyncio.run(_names(ctx.params.get("namespace"), ctx.params.get("context")))
        return [name for name in names if name.startswith(incomplete)]
    return []


async def _names(namespace: str | None, context: str | None) -> list[str]:
    from swe_rollout.launcher.remote import open_jobs

    async with asyncio.timeout(_PATIENCE_S), open_jobs(context) as jobs:
        return [job.name for job in await jobs.in_namespace(namespace or jobs.namespace)]


def complete_for_kubectl() -> None:
    """The entry point `kubectl_complete-swe_rollout`: words for `kubectl swe-rollout …<TAB>`."""
    from swe_rollout.cli.main import command

    words = sys.argv[1:]
    os.environ |= {
        "_SWE_ROLLOUT_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(["swe-rollout", *words]),
        "COMP_CWORD": str(len(words)),
    }
    offered = io.StringIO()
    with redirect_stdout(offered), suppress(SystemExit):
        command()(prog_name="swe-rollout")
    found = offered.getvalue().split()
    sys.stdout.write("\n".join([*found, _NO_FILES if found else _FILES_TOO]) + "\n")
