"""`install`: install the RolloutJob definition and its operator on a cluster.

It applies the kustomize base of manifests/, which `scripts/generate` writes beside this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Annotated, Final

from swe_rollout.cli.options import Context, option

LOCAL_IMAGE: Final = "swe-rollout/worker:local"
_REFERENCE: Final = (
    r"(?:(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?/)?"
    r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?"
)
"""Registry, name, tag and digest, as container runtimes read them."""

Print = Annotated[bool, option("--print", help="Print the manifests; apply nothing.")]
Image = Annotated[
    str | None,
    option(
        help="Image of the operator and the workers, by digest: NAME@sha256:…. Default: the local "
        "build."
    ),
]
Timeout = Annotated[
    float,
    option(
        "--timeout", min=0, max=86_400, metavar="SECONDS", help="How long to wait for the operator."
    ),
]


def install(
    *,
    print_only: Print = False,
    image: Image = None,
    context: Context = None,
    timeout_s: Timeout = 180.0,
) -> None:
    """Install RolloutJobs on a cluster: their definition, the operator and its permissions.

    Run it again to upgrade: existing objects are updated.

    swe-rollout install --image registry.example/swe-rollout/worker@sha256:…

    swe-rollout install --print | kubectl apply --server-side -f -
    """
    from swe_rollout.cli.interrupt import run_async
    from swe_rollout.cli.output import say, write_lines

    text = manifests(image)
    if image is not None and not is_pinned(image):
        say(
            f"warning: {image} is a tag, which can be moved: workers of one job may then run "
            "different code\n  fix   --image NAME@sha256:… with the digest that the push printed"
        )
    if print_only:
        write_lines(text.splitlines())
        return
    run_async(_install(text, context, timeout_s), on_note=say)


def manifests(image: str | None = None) -> str:
    """The manifests as YAML, with `image` in place of the local build."""
    text = resources.files("swe_rollout.cli").joinpath("install.yaml").read_text(encoding="utf-8")
    if image is None:
        return text
    return "".join(_with_image(text, image))


def is_pinned(image: str) -> bool:
    """Whether a reference names one image for ever, by its digest. Raises UsageError."""
    import re

    from swe_rollout.errors import UsageError

    if (found := re.fullmatch(_REFERENCE, image)) is None:
        raise UsageError(
            f"{image!r} is not an image reference",
            why="a name is in lower case, and a digest is sha256: and 64 hexadecimal digits",
            fix="write it as registry/repository@sha256:… or registry/repository:tag",
        )
    return found["digest"] is not None


def _with_image(text: str, image: str) -> Iterator[str]:
    """Replace the image in both places: the operator's own, and the one it gives to workers."""
    is_pinned(image)
    for line in text.splitlines(keepends=True):
        key, separator, value = line.partition(": ")
        if value.strip() == LOCAL_IMAGE and key.strip() in ("image", "value"):
            yield f"{key}{separator}{image}\n"
        else:
            yield line


async def _install(text: str, context: str | None, timeout_s: float) -> None:
    import yaml

    from swe_rollout.cli.output import say, write_lines
    from swe_rollout.cluster.apply import Applier
    from swe_rollout.cluster.client import ClusterClient
    from swe_rollout.cluster.installation import NAMESPACE, Installation
    from swe_rollout.spec.job import CRD_NAME

    client = await ClusterClient.connect(context, retry_timeout_s=15.0)
    try:
        installation = Installation(client)
        documents = list(yaml.safe_load_all(text))
        [definition] = (each for each in documents if each["kind"] == "CustomResourceDefinition")
        versions = {each["name"] for each in definition["spec"]["versions"]}
        await installation.check_stored_versions(CRD_NAME, versions)
        applier = Applier(client.transport, on_note=say, timeout_s=timeout_s)
        for document in documents:
            applied = await applier.apply(document)
            write_lines([f"{applied.name} {applied.result}"])
        await installation.wait_until_served(CRD_NAME, timeout_s=timeout_s)
        say(f"waiting for the operator in {NAMESPACE}")
        await installation.wait_until_available(timeout_s=timeout_s)
        await installation.wait_until_served(CRD_NAME, timeout_s=timeout_s)
        say("the operator is up; start a job with: swe-rollout launch job.yaml")
    finally:
        await client.aclose()
