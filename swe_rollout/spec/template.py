"""Generate a starter job file: values from this module, comments from the schema."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from swe_rollout.spec.fields import all_fields
from swe_rollout.spec.job import API_VERSION, KIND

_VALUES = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "metadata.name": "demo",
    "spec.dataset.releasePairs.names": "[sqlparse]",
    "spec.samples": "4",
    "spec.parallelism": "4",
    "spec.policy.scripted.scenarios": "[gold, wrong, malformed, loop]",
    "spec.sampling.temperature": "1.0",
    "spec.limits.turns": "30",
    "spec.limits.contextTokens": "32768",
    "spec.sandbox.local": "{}",
    "spec.store.uri": "file://runs",
}


def template() -> str:
    """Return a commented `job.yaml` that runs without a model or a cluster."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    for field in all_fields():
        indent = "  " * (len(field.path) - 1)
        value = _VALUES.get(field.dotted)
        if value is None and not any(name.startswith(f"{field.dotted}.") for name in _VALUES):
            continue
        if field.doc:
            prefix = f"{indent}# "
            yield from wrap(field.doc, 100, initial_indent=prefix, subsequent_indent=prefix)
        yield f"{indent}{field.name}:" + (f" {value}" if value else "")
