"""`uninstall`: remove what `install` applied, and first the jobs that rely on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final

from swe_rollout.cli.options import Context, option

if TYPE_CHECKING:
    from swe_rollout.cluster.client import ClusterClient

_KEPT_WITH_JOBS: Final = frozenset(
    {"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
)
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
    option("--timeout", min=0, metavar="SECONDS", help="How long to wait for each step."),
]


def uninstall(
    *,
    yes: Yes = False,
    keep_jobs: KeepJobs = False,
    context: Context = None,
    timeout_s: Timeout = 180.0,
) -> None:
    """Remove RolloutJobs from a cluster: the jobs, their definition, the operator and its rights.

    Jobs go first, with their pods; trajectories stay in their stores. Run it again if it was
    interrupted: it goes on where it stopped.

    swe-rollout uninstall

    swe-rollout uninstall --keep-jobs && swe-rollout install --image IMAGE
    """
    import sys

    from swe_rollout.cli.interrupt import run_async
    from swe_rollout.cli.output import say

    sys.setrecursionlimit(_DEEPEST)
    run_async(_uninstall(context, timeout_s, yes=yes, keep_jobs=keep_jobs), on_note=say)


async def _uninstall(context: str | None, timeout_s: float, *, yes: bool, keep_jobs: bool) -> None:
    from swe_rollout.cli.output import say, write_lines
    from swe_rollout.cluster.apply import Applier
    from swe_rollout.cluster.client import ClusterClient

    client = await ClusterClient.connect(context, retry_timeout_s=15.0)
    try:
        if not keep_jobs:
            await _delete_jobs(client, timeout_s, yes=yes)
        applier = Applier(client.transport, on_note=say, timeout_s=timeout_s)
        for document in _documents(keep_jobs=keep_jobs):
            if document["kind"] == "Namespace" and await _is_shared(client, str(_name(document))):
                write_lines([f"namespace/{_name(document)} kept: others run pods in it"])
                continue
            deleted = await applier.delete(document)
            write_lines([f"{deleted.name} {deleted.result}"])
    finally:
        await client.aclose()
    if keep_jobs:
        say("jobs stay, and nobody manages them; continue with: swe-rollout install")


async def _delete_jobs(client: ClusterClient, timeout_s: float, *, yes: bool) -> None:
    from swe_rollout.cli.output import say, write_lines
    from swe_rollout.cluster.removal import Removal

    removal = Removal(client.transport)
    found = (await removal.remains()).jobs
    if found and not yes:
        _confirm(len(found), len({job.namespace for job in found}))
    await removal.delete_jobs(timeout_s=timeout_s, on_note=say)
    write_lines(f"rolloutjob/{job.name} in {job.namespace} deleted" for job in found)
    for namespace in await removal.delete_policies():
        write_lines([f"networkpolicy in {namespace} deleted"])


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


def _documents(*, keep_jobs: bool) -> Iterator[Mapping[str, object]]:
    """Yield what `install` applies, last first: nobody acts on what is gone already."""
    import yaml

    from swe_rollout.cli.install import manifests

    for document in reversed(list(yaml.safe_load_all(manifests()))):
        is_for_jobs = document["kind"] in _KEPT_WITH_JOBS or (
            document["kind"] == "ClusterRole" and _name(document) != _OPERATOR
        )
        if not (keep_jobs and is_for_jobs):
            yield document


def _name(document: Mapping[str, object]) -> object:
    metadata = document["metadata"]
    return metadata["name"] if isinstance(metadata, dict) else ""


async def _is_shared(client: ClusterClient, namespace: str) -> bool:
    """Whether pods of others run in the operator's namespace."""
    from swe_rollout.cluster.installation import SELECTOR

    name, _, value = SELECTOR.partition("=")
    found = await client.list_pods(namespace, f"{name}!={value}")
    return bool(found.items)
