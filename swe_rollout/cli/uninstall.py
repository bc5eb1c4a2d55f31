"""`uninstall`: delete the jobs, then print for `kubectl delete` what `install` printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

from swe_rollout.cli.options import Context, option

if TYPE_CHECKING:
    from swe_rollout.cluster.client import ClusterClient

_KEPT_WITH_JOBS: Final = (
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
_SYSTEM: Final = "swe-rollout-system"
_OPERATOR: Final = "swe-rollout-operator"
_DEEPEST: Final = 20_000
"""Frames: a job's JSON may be nested as deeply as the API server admits, and is listed anyway."""

Yes = Annotated[bool, option("--yes", "-y", help="Delete the jobs on the cluster without asking.")]
KeepJobs = Annotated[
    bool,
    option("--keep-jobs", help="Remove the operator only: jobs stay, and their workers run on."),
]
Timeout = Annotated[
    float,
    option("--timeout", min=0, metavar="SECONDS", help="How long to wait for the jobs' pods."),
]


def uninstall(
    *,
    yes: Yes = False,
    keep_jobs: KeepJobs = False,
    context: Context = None,
    timeout_s: Timeout = 180.0,
) -> None:
    """Remove RolloutJobs from a cluster: delete the jobs, then print the rest for kubectl.

    Jobs go with their pods; trajectories stay in their stores. kubectl deletes their definition,
    the operator and its rights. Run it again if it was interrupted:
    it goes on where it stopped.

    swe-rollout uninstall | kubectl delete --ignore-not-found -f -

    swe-rollout uninstall --keep-jobs | kubectl delete --ignore-not-found -f -
    """
    import sys

    from swe_rollout.cli.interrupt import run_async
    from swe_rollout.cli.output import say, write_lines

    sys.setrecursionlimit(_DEEPEST)
    work = _uninstall(context, timeout_s, yes=yes, keep_jobs=keep_jobs)
    keeps_namespace = run_async(work, on_note=say)
    write_lines(_documents(keep_jobs=keep_jobs, keep_namespace=keeps_namespace))
    if keep_jobs:
        say("jobs stay, and nobody manages them until the next install")
    if sys.stdout.isatty():
        say("nothing of this is deleted yet: pipe it into kubectl delete --ignore-not-found -f -")


async def _uninstall(context: str | None, timeout_s: float, *, yes: bool, keep_jobs: bool) -> bool:
    """Delete the jobs, unless they are kept; return whether the namespace has pods of others."""
    from swe_rollout.cli.output import say
    from swe_rollout.cluster.client import ClusterClient
    from swe_rollout.cluster.objects import PODS

    client = await ClusterClient.connect(context, retry_timeout_s=15.0)
    try:
        if not keep_jobs:
            await _delete_jobs(client, timeout_s, yes=yes)
        others = f"app.kubernetes.io/name!={_OPERATOR}"
        is_shared = bool((await client.list(PODS, _SYSTEM, labels=others)).items)
    finally:
        await client.aclose()
    if is_shared:
        say(f"namespace/{_SYSTEM} is kept: others run pods in it")
    return is_shared


async def _delete_jobs(client: ClusterClient, timeout_s: float, *, yes: bool) -> None:
    from swe_rollout.cli.output import say
    from swe_rollout.cluster.removal import delete_jobs, delete_policies, find_remains

    found = (await find_remains(client)).jobs
    if found and not yes:
        _confirm(len(found), len({job.namespace for job in found}))
    await delete_jobs(client, timeout_s=timeout_s, on_note=say)
    for job in found:
        say(f"rolloutjob/{job.name} in {job.namespace} deleted")
    for namespace in await delete_policies(client):
        say(f"networkpolicy in {namespace} deleted")


def _confirm(jobs: int, namespaces: int) -> None:
    """Ask before jobs are deleted; UsageError where nobody can answer."""
    import sys

    import typer

    from swe_rollout.errors import UsageError

    what = f"{jobs} RolloutJobs in {namespaces} namespaces would be deleted with their pods"
    if not sys.stdin.isatty():
        raise UsageError(
            what,
            why="trajectories stay in their stores, but running episodes are lost",
            fix="confirm it with --yes, or keep them: --keep-jobs",
        )
    typer.confirm(f"{what}; trajectories stay in their stores. Continue?", abort=True, err=True)


def _documents(*, keep_jobs: bool, keep_namespace: bool) -> Iterator[str]:
    """Yield what `install` prints, last first: nobody acts on what is gone already."""
    from swe_rollout.cli.install import manifests

    for document in reversed(re.split(r"^---\n", manifests(), flags=re.MULTILINE)):
        head = re.search(r"^kind: (\w+)\nmetadata:\n  name: (\S+)", document, re.MULTILINE)
        kind, name = head.groups() if head is not None else ("", "")
        is_for_jobs = kind in _KEPT_WITH_JOBS or (kind == "ClusterRole" and name != _OPERATOR)
        if (keep_jobs and is_for_jobs) or (keep_namespace and kind == "Namespace") or not kind:
            continue
        yield f"---\n{document.rstrip()}"
