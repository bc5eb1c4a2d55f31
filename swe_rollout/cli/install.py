"""`install`: print the RolloutJob definition and its operator, for `kubectl apply` to install.

They are the kustomize base of manifests/, which `scripts/generate` writes beside this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Annotated, Final

from swe_rollout.cli.options import option

LOCAL_IMAGE: Final = "swe-rollout/worker:local"
_REFERENCE: Final = (
    r"(?:(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?/)?"
    r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?"
)
"""Registry, name, tag and digest, as container runtimes read them."""

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
    import sys

    from swe_rollout.cli.output import say, write_lines

    del print_only  # earlier versions applied the manifests unless they were told to print them
    text = manifests(image)
    if image is not None and not is_pinned(image):
        say(
            f"warning: {image} is a tag, which can be moved: workers of one job may then run "
            "different code\n  fix   --image NAME@sha256:… with the digest that the push printed"
        )
    write_lines(text.splitlines())
    if sys.stdout.isatty():
        say("nothing is installed yet: swe-rollout install | kubectl apply --server-side -f -")


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
