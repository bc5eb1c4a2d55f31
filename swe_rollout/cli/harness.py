"""`harness install`, `ls` and `manifest`: agents that are programs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from swe_rollout.cli.options import Form, OutputFormat, option
from swe_rollout.cli.output import say, write_lines, write_table
from swe_rollout.errors import UsageError

Name = Annotated[str, typer.Argument(metavar="NAME", help="One of `swe-rollout harness ls`.")]
To = Annotated[
    Path | None, option("--to", metavar="DIR", help="A new folder. Default: in the user's cache.")
]


Bundle = Annotated[
    str, typer.Argument(metavar="NAME", help="The bundle's name: lower case, digits and dashes.")
]
Files = Annotated[
    str, option("--image", help="Image with the bundle's files, by digest: NAME@sha256:….")
]
Namespace = Annotated[str, option("--namespace", "-n", help="The namespace of the sandboxes.")]
Tools = Annotated[str, option("--tools", help="An image with a static busybox, for the copying.")]


def install(name: Name, *, to: To = None) -> None:
    """Install a ready harness from its vendor's own registry. Prints its folder.

    Jobs on this machine with `agent: {harness: NAME}` find it in the user's cache. For pods, make
    an image of a folder of your own: docs/how-to/gateway.md. Its licence is between you and its
    vendor. Needs npm, or for those in Python uv or pip.

    swe-rollout harness install codex

    swe-rollout harness install codex --to ./codex
    """
    from swe_rollout.worker import harnesses

    ready = harnesses.ready()
    if name not in ready:
        raise UsageError(f"there is no ready harness {name}", fix=f"name one of {', '.join(ready)}")
    folder = to or harnesses.folder_of(name)
    if to is not None or not folder.is_dir():
        say(f"installing {ready[name].package}: a minute or two")
        harnesses.install(name, folder)
    write_lines([str(folder)])


def manifest(
    name: Bundle,
    *,
    image: Files,
    namespace: Namespace = "default",
    tools: Tools = "docker.io/library/busybox:1.37-musl",
) -> None:
    """Print what copies a bundle to each node of a cluster without image volumes, once.

    Pipe it into kubectl, as an administrator. Sandboxes of the namespace mount the claim that it
    names, read-only; on a node that has no copy yet they wait for it.

    swe-rollout harness manifest codex --image IMAGE@sha256:… | kubectl apply --server-side -f -

    swe-rollout harness manifest codex --image IMAGE@sha256:… -n rollouts >bundle.yaml
    """
    from swe_rollout.cli.install import is_pinned
    from swe_rollout.worker import node_copy

    if re.fullmatch("[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?", name) is None:
        raise UsageError(
            f"{name!r} is no name", fix="use lower case, digits and dashes, at most 30"
        )
    if re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", namespace) is None:
        raise UsageError(f"{namespace!r} is not the name of a namespace")
    is_pinned(tools)
    if not is_pinned(image):
        say(f"warning: {image} is a tag: nodes that have a copy never look whether it was moved")
    write_lines(
        node_copy.manifest(name, image=image, namespace=namespace, tools=tools).splitlines()
    )
    claim = node_copy.claim_of(name, image, namespace)
    say(f"for the job: sandbox: {{pod: {{bundleClaims: {{/opt/harness: {claim}}}}}}}")


def ls(*, output: Form = OutputFormat.TABLE) -> None:
    """List the ready harnesses, their packages, and whether this machine has them.

    swe-rollout harness ls

    swe-rollout harness ls -o name
    """
    from swe_rollout.worker.harnesses import folder_of, ready

    rows = [
        [name, each.package, "yes" if folder_of(name).is_dir() else "no"]
        for name, each in ready().items()
    ]
    write_table(["NAME", "PACKAGE", "INSTALLED"], rows, output)
