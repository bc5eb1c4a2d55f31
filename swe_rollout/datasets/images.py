"""Choose where task images are pulled from: another registry, other names, or by digest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from swe_rollout.datasets.row_files import read_bytes
from swe_rollout.errors import DatasetError, Problem
from swe_rollout.spec.dataset import Images
from swe_rollout.types.instance import Instance

_HUB = "docker.io"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ImageRules:
    """Rules that turn the images named by rows into the images to pull."""

    rewrite: Mapping[str, str] = field(default_factory=dict)
    registry: str = ""
    digests: Mapping[str, str] | None = None
    """The digest of each image by full name; None if images are pulled by tag."""

    @classmethod
    async def load(cls, images: Images, *, base_dir: Path) -> ImageRules:
        """Read the file of digests, if there is one. Raises DatasetError."""
        if images.digests is None:
            return cls(images.rewrite, images.registry)
        data = await read_bytes(images.digests, base_dir, field="dataset.images.digests")
        return cls(images.rewrite, images.registry, _digests(images.digests, data))

    def applied(self, instance: Instance) -> Instance | Problem:
        """Return the instance with the image to pull, or the reason why there is none."""
        image = self._moved(instance.image)
        if self.digests is not None and "@" not in instance.image:
            digest = self.digests.get(full_name(instance.image))
            if digest is None:
                message = f"{instance.image} is not in the file of digests"
                return Problem(instance.instance_id, "dataset.images.digests", message)
            image = f"{_without_tag(image)}@{digest}"
        return replace(instance, image=image)

    def _moved(self, image: str) -> str:
        names = (image, full_name(image))
        for name in names:
            matching = [prefix for prefix in self.rewrite if name.startswith(prefix)]
            if matching:
                prefix = max(matching, key=len)
                return self.rewrite[prefix] + name.removeprefix(prefix)
        if not self.registry:
            return image
        return f"{self.registry.rstrip('/')}/{full_name(image).partition('/')[2]}"


def full_name(image: str) -> str:
    """Return an image's name with its registry and tag: `docker.io/library/python:latest`."""
    host, slash, _ = image.partition("/")
    if not slash:
        image = f"{_HUB}/library/{image}"
    elif not (set(host) & {".", ":"} or host == "localhost"):
        image = f"{_HUB}/{image}"
    is_tagged = ":" in image.rpartition("/")[2]
    return image if is_tagged or "@" in image else f"{image}:latest"


def _without_tag(image: str) -> str:
    folder, slash, name = image.rpartition("/")
    return f"{folder}{slash}{name.partition(':')[0]}"


def _digests(uri: str, data: bytes) -> dict[str, str]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _bad(uri, f"invalid JSON: {str(error)[:80]}") from error
    if not isinstance(found, dict):
        raise _bad(uri, "expected an object of image to digest")
    for image, digest in found.items():
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise _bad(uri, f"{image[:200]}: expected `sha256:` and 64 hexadecimal digits")
    return {full_name(image): digest for image, digest in found.items()}


def _bad(uri: str, why: str) -> DatasetError:
    problem = Problem("dataset.images.digests", uri, why)
    return DatasetError(
        "the file of image digests can't be used",
        [problem],
        fix='write an object such as {"swebench/x:latest": "sha256:…"}',
    )
