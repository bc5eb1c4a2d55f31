"""`install` and `uninstall`: print the RolloutJob definition and its operator for kubectl.

`scripts/generate` writes them beside this file, from the kustomize base in manifests/.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import aclosing
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Final

import typer

from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.options import Context, option
from swe_rollout.cli.output import say, write_lines
from swe_rollout.errors import UsageError

if TYPE_CHECKING:
    from swe_rollout.cluster.client import ClusterClient

_MOVABLE: Final = (
    "is a tag, which can be moved: workers of one job may then run different code\n"
    "  fix   --image NAME@sha256:… with the digest that the push printed"
)
LOCAL_IMAGE: Final = "swe-rollout/worker:local"
_REFERENCE: Final = (
    r"(?:(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?/)?"
    r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?"
)
"""Matches registry, name, tag and digest as container runtimes parse them."""

_KEPT_WITH_JOBS: Final = (
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
_SYSTEM: Final = "swe-rollout-system"
_OPERATOR: Final = "swe-rollout-operator"
_DEEPEST: Final = 20_000
"""Recursion limit, because a listed job's JSON may be nested as deeply as the API allows."""

Print = Annotated[bool, option("--print", hidden=True, help="Does nothing; printing is all.")]
Image = Annotated[
    str | None,
    option(
        help="Image of the operator and the workers, by digest: NAME@sha256:…. Default: the local "
        "build."
    ),
]


def install(*, print_only: Print = False, image: Image = None) -> None:
    """Install RolloutJobs on a cluster: print the definition, the operator and its permissions.

    Pipe them into kubectl, and do so again to upgrade. Wait for the operator with
    `kubectl rollout status -n swe-rollout-system deployment/swe-rollout-operator`.

    swe-rollout install | kubectl apply --server-side -f -

    swe-rollout install --image registry.example/swe-rollout/worker@sha256:… > install.yaml
    """
    del print_only  # earlier versions applied the manifests unless asked to print them
    text = manifests(image)
    if image is not None and not is_pinned(image):
        say(f"warning: {image} {_MOVABLE}")
    write_lines(text.splitlines())
    if sys.stdout.isatty():
        say("nothing is installed yet: swe-rollout install | kubectl apply --server-side -f -")


def manifests(image: str | None = None) -> str:
    """Return the manifests as YAML, with `image` in place of the local build."""
    text = resources.files("swe_rollout.cli").joinpath("install.yaml").read_text(encoding="utf-8")
    if image is None:
        return text
    return "".join(_with_image(text, image))


def is_pinned(image: str) -> bool:
    """Whether a reference pins an image by its digest. Raises UsageError."""
    if (found := re.fullmatch(_REFERENCE, image)) is None:
        raise UsageError(
            f"{image!r} is not an image reference",
            why="a name is in lower case, and a digest is sha256: and 64 hexadecimal digits",
            fix="write it as registry/repository@sha256:… or registry/repository:tag",
        )
    return found["digest"] is not None


def _with_image(text: str, image: str) -> Iterator[str]:
    """Replace the operator's own image and the one that it gives to workers."""
    is_pinned(image)
    for line in text.splitlines(keepends=True):
        key, separator, value = line.partition(": ")
        if value.strip() == LOCAL_IMAGE and key.strip() in ("image", "value"):
            yield f"{key}{separator}{image}\n"
        else:
            yield line


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
    the operator and its permissions. If interrupted, run it again: it resumes where it stopped.

    swe-rollout uninstall | kubectl delete --ignore-not-found -f -

    swe-rollout uninstall --keep-jobs | kubectl delete --ignore-not-found -f -
    """
    sys.setrecursionlimit(_DEEPEST)
    work = _uninstall(context, timeout_s, yes=yes, keep_jobs=keep_jobs)
    keeps_namespace = run_async(work, on_note=say)
    write_lines(_documents(keep_jobs=keep_jobs, keep_namespace=keeps_namespace))
    if keep_jobs:
        say("jobs stay, and nobody manages them until the next install")
    if sys.stdout.isatty():
        say("nothing of this is deleted yet: pipe it into kubectl delete --ignore-not-found -f -")


async def _uninstall(context: str | None, timeout_s: float, *, yes: bool, keep_jobs: bool) -> bool:
    """Delete the jobs unless they are kept; return whether the namespace has other pods."""
    from swe_rollout.cluster.client import ClusterClient
    from swe_rollout.cluster.objects import PODS

    async with aclosing(await ClusterClient.connect(context, retry_timeout_s=15.0)) as client:
        if not keep_jobs:
            await _delete_jobs(client, timeout_s, yes=yes)
        others = f"app.kubernetes.io/name!={_OPERATOR}"
        is_shared = await client.has(PODS, _SYSTEM, labels=others)
    if is_shared:
        say(f"namespace/{_SYSTEM} is kept: others run pods in it")
    return is_shared


async def _delete_jobs(client: ClusterClient, timeout_s: float, *, yes: bool) -> None:
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
    """Ask before deleting jobs. Raises UsageError if nobody can respond."""
    what = f"{jobs} RolloutJobs in {namespaces} namespaces would be deleted with their pods"
    if not sys.stdin.isatty():
        raise UsageError(
            what,
            why="trajectories stay in their stores, but running episodes are lost",
            fix="confirm it with --yes, or keep them: --keep-jobs",
        )
    typer.confirm(f"{what}; trajectories stay in their stores. Continue?", abort=True, err=True)


def _documents(*, keep_jobs: bool, keep_namespace: bool) -> Iterator[str]:
    """Yield the documents of `install` in reverse, so nothing acts on deleted objects."""
    for document in reversed(re.split(r"^---\n", manifests(), flags=re.MULTILINE)):
        head = re.search(r"^kind: (\w+)\nmetadata:\n  name: (\S+)", document, re.MULTILINE)
        kind, name = head.groups() if head is not None else ("", "")
        is_for_jobs = kind in _KEPT_WITH_JOBS or (kind == "ClusterRole" and name != _OPERATOR)
        if (keep_jobs and is_for_jobs) or (keep_namespace and kind == "Namespace") or not kind:
            continue
        yield f"---\n{document.rstrip()}"
