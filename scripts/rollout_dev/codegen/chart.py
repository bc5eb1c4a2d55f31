"""Make the file of `swe-rollout install` and the Helm chart from the kustomize base in manifests/.

The base lists files and changes nothing in them, so no kustomize is needed here; a test on the
cluster tier compares both.

Each resource becomes one template, with the lines of `chart.yaml` in place of some of its own.
Written by hand in charts/swe-rollout are the values with their schema, and the parts that exist in
the chart only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = "charts/swe-rollout"
_LISTING: Final = {"apiVersion", "kind", "resources"}
_NAMESPACE: Final = "swe-rollout-system"
"""In the manifests; the chart's is the release's."""
_LEFT_OUT: Final = ("namespace.yaml",)
"""Helm creates a release's namespace, or finds it."""
_CRDS: Final = "crd/"
"""Installed first by Helm, as they are, and never updated."""
_HEADER: Final = "# Made by scripts/generate; change manifests/{source} instead.\n"


def bundle(kustomization: Path, generated: Mapping[Path, str]) -> str:
    """Join the documents that a kustomization lists; `generated` has files not written yet."""
    paths = resources(kustomization)
    texts = [generated.get(path) or path.read_text(encoding="utf-8") for path in paths]
    return "---\n".join(_without_header(text) for text in texts)


def resources(kustomization: Path) -> list[Path]:
    """List the files of a kustomization that does nothing but list files."""
    base = yaml.safe_load(kustomization.read_text(encoding="utf-8"))
    if unknown := set(base) - _LISTING:
        raise SystemExit(f"{kustomization}: only resources can be bundled, not {unknown}")
    return [kustomization.parent / name for name in base["resources"]]


def _without_header(text: str) -> str:
    lines = text.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if not line.startswith(("#", "---")))
    return "".join(lines[first:])


def chart(
    kustomization: Path, generated: Mapping[Path, str], project: Mapping[str, str]
) -> dict[str, str]:
    """Return the generated files of the chart by name; `project` is that of pyproject.toml."""
    files = {f"{FOLDER}/Chart.yaml": _metadata(project)}
    seen: set[str] = set()
    for path in resources(kustomization):
        source = path.relative_to(kustomization.parent).as_posix()
        text = generated.get(path) or path.read_text(encoding="utf-8")
        seen.add(source)
        if source in _LEFT_OUT:
            continue
        if source.startswith(_CRDS):
            files[f"{FOLDER}/crds/{path.name}"] = text
        else:
            name = source.replace("/", "-")
            files[f"{FOLDER}/templates/{name}"] = template(source, text)
    if missing := {*_changes(), *_LEFT_OUT} - seen:
        raise SystemExit(f"{kustomization}: the chart expects {', '.join(sorted(missing))}")
    return files


def template(source: str, text: str) -> str:
    """Make the template of one resource."""
    if "{{" in text:
        raise SystemExit(f"manifests/{source}: {{{{ would be read by Helm")
    changes = _changes().get(source, {})
    for each in changes.get("replace", ()):
        if text.count(each["lines"]) != 1:
            lines = each["lines"]
            raise SystemExit(f"manifests/{source}: the chart needs these lines once:\n{lines}")
        text = text.replace(each["lines"], each["by"])
    text = text.replace(_NAMESPACE, "{{ .Release.Namespace }}")
    if (condition := changes.get("if")) is not None:
        text = f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"
    return _HEADER.format(source=source) + text


@cache
def _changes() -> dict[str, Any]:
    changes: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    return changes


def _metadata(project: Mapping[str, str]) -> str:
    value = {
        "apiVersion": "v2",
        "name": "swe-rollout",
        "description": "The operator of RolloutJobs: episodes of coding agents on Kubernetes.",
        "type": "application",
        "version": project["version"],
        "appVersion": project["version"],
        # ValidatingAdmissionPolicy.
        "kubeVersion": ">=1.30.0-0",
        "keywords": ["reinforcement-learning", "coding-agents", "rollouts"],
        "annotations": {"artifacthub.io/license": project["license"]},
    }
    return "# Made by scripts/generate; change pyproject.toml instead.\n" + yaml.safe_dump(
        value, sort_keys=False
    )
