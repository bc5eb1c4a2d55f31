"""The manifest that copies a bundle to each node once, for clusters without image volumes.

Printed by `swe-rollout harness manifest`, applied by kubectl: sandboxes themselves may mount no
folder of their node, but a claim whose volume is one.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from textwrap import indent
from typing import Final

from swe_rollout.spec.sandbox import CLAIM_PREFIX

_FOLDER: Final = "/var/lib/swe-rollout/bundles"
_SCRIPT: Final = """\
cd "$NODE"
[ ! -d "$COPY" ] || exit 0
new=.new-$COPY-$HOSTNAME
rm -rf "$new"
mkdir -m 755 "$new"
for each in "${FROM-}"/* "${FROM-}"/.[!.]*; do
  case "${each#"${FROM-}"}" in
    # Of the container, not of the image.
    /dev | /etc | /proc | /run | /sys | /.swe-rollout) continue ;;
  esac
  if [ -e "$each" ] || [ -L "$each" ]; then cp -a "$each" "$new/"; fi
done
sync
mv -T "$new" "$COPY"
[ -d "$COPY" ]
rm -rf .new-"$COPY"-*
"""
"""A name that is there has a whole copy, since it comes into being by a rename. What was killed
before is begun anew by the next attempt, in a folder of each pod's own."""


def claim_of(name: str, image: str, namespace: str) -> str:
    """Return the name of the claim by which a namespace's sandboxes mount the bundle."""
    digest = hashlib.sha256(f"{namespace} {image}".encode()).hexdigest()[:8]
    return f"{CLAIM_PREFIX}{name}-{digest}"


def manifest(name: str, *, image: str, namespace: str, tools: str) -> str:
    """Return the manifest as YAML; `tools` is an image with a static busybox."""
    claim = claim_of(name, image, namespace)
    folder = claim.removeprefix(CLAIM_PREFIX)
    values = {
        "NAME": claim,
        "VOLUME": f"{claim}-{namespace}",
        "NAMESPACE": namespace,
        "IMAGE": image,
        "TOOLS": tools,
        "FOLDER": folder,
        # A folder for each namespace: who may create any pod in one could write to its copies.
        "PARENT": f"{_FOLDER}/{namespace}",
        "PATH": f"{_FOLDER}/{namespace}/{folder}",
        "SCRIPT": indent(_SCRIPT, " " * 14).rstrip(),
    }
    text = (files(__package__) / "node_copy.yaml").read_text("utf-8")
    return re.sub("@([A-Z]+)@", lambda found: values[found[1]], text)
