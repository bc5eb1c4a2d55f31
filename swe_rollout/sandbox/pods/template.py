"""A job's own pod template over the hardened pod of a sandbox, as people expect it to merge.

Mappings go into one another, lists of named things (containers, volumes, variables) by name,
tolerations are added, everything else replaces the default; null takes a default away. What a
template may not touch is in `swe_rollout.spec.pod_template`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from swe_rollout.cluster.manifests import PodManifest, TemplatedPod
from swe_rollout.errors import PrerequisiteError
from swe_rollout.spec.pod_template import template_problems

if TYPE_CHECKING:
    from collections.abc import Mapping

_ADDED = frozenset({"tolerations"})
"""Lists without names whose defaults stay."""


def check_template(template: Mapping[str, object]) -> None:
    """Return when the template can be merged; PrerequisiteError with every reason why not."""
    if problems := template_problems(template):
        raise PrerequisiteError(
            "the pod template asks for what a sandbox can't have",
            why="; ".join(map(str, problems)),
            fix="take these fields out of spec.sandbox.pod.template",
        )


def with_template(
    manifest: PodManifest, template: Mapping[str, object]
) -> PodManifest | TemplatedPod:
    """The pod with the template's fields over its own; the template was checked."""
    if not template:
        return manifest
    own = msgspec.to_builtins(manifest)
    merged = msgspec.convert(_merged(own, dict(template)), TemplatedPod)
    return msgspec.structs.replace(
        merged,
        metadata=msgspec.structs.replace(
            manifest.metadata,
            # Identity comes last: nothing can take its place.
            labels={**merged.metadata.labels, **manifest.metadata.labels},
            annotations={**merged.metadata.annotations, **manifest.metadata.annotations},
        ),
    )


def _merged(own: object, wanted: object, *, name: str = "") -> object:
    match own, wanted:
        case dict(), dict():
            both = {**own, **{k: _merged(own.get(k), v, name=k) for k, v in wanted.items()}}
            return {key: value for key, value in both.items() if value is not None}
        case None, dict():
            return _merged({}, wanted)
        case list() | tuple(), list() if name in _ADDED:
            return [*own, *wanted]
        case list() | tuple(), list() if _are_named(own) and _are_named(wanted):
            return _by_name(own, wanted)
        case _:
            return wanted


def _by_name(own: list[object] | tuple[object, ...], wanted: list[object]) -> list[object]:
    parts = {_name(part): part for part in own}
    for part in wanted:
        parts[_name(part)] = _merged(parts.get(_name(part)), part)
    return list(parts.values())


def _are_named(parts: list[object] | tuple[object, ...]) -> bool:
    return all(_name(part) for part in parts)


def _name(part: object) -> str:
    return str(part.get("name", "")) if isinstance(part, dict) else ""
