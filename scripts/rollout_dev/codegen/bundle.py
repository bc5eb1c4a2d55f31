"""Bundle the resources of the kustomize base into one file, like `kubectl kustomize`.

The base lists files and changes nothing in them, so no kustomize is needed here; a test on the
cluster tier compares both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

_KNOWN = {"apiVersion", "kind", "resources"}


def bundle(kustomization: Path, generated: Mapping[Path, str]) -> str:
    """Join the documents that a kustomization lists; `generated` has files not written yet."""
    paths = resources(kustomization)
    texts = [generated.get(path) or path.read_text(encoding="utf-8") for path in paths]
    return "---\n".join(_without_header(text) for text in texts)


def resources(kustomization: Path) -> list[Path]:
    """List the files of a kustomization that does nothing but list files."""
    base = yaml.safe_load(kustomization.read_text(encoding="utf-8"))
    if unknown := set(base) - _KNOWN:
        raise SystemExit(f"{kustomization}: only resources can be bundled, not {unknown}")
    return [kustomization.parent / name for name in base["resources"]]


def _without_header(text: str) -> str:
    lines = text.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if not line.startswith(("#", "---")))
    return "".join(lines[first:])
