"""The CustomResourceDefinition of a RolloutJob, made from the models in `job` and `status`.

`scripts/generate` writes it to manifests/crd, from where the cluster learns it. The translation of
schemas is in `structural`. What holds on a cluster only is in `cluster_rules.yaml`: CEL rules that
the API server checks before it stores a job, whose messages the reference page lists.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from rollout_dev.codegen.structural import Json, Schema, structural
from swe_rollout.spec.job import API_VERSION, CRD_NAME, KIND, RolloutJob
from swe_rollout.spec.status import RolloutJobStatus

GROUP: Final = API_VERSION.partition("/")[0]
VERSION: Final = API_VERSION.partition("/")[2]
SINGULAR: Final = KIND.lower()
PLURAL: Final = f"{SINGULAR}s"
SCHEMA_ANNOTATION: Final = f"{GROUP}/schema"
"""Holds the digest of the schema, so that a client can tell whether the cluster has its own."""
_TEMPLATE: Final = "spec.sandbox.pod.template"
_OPEN: Final = (
    *("", ".metadata", ".spec", ".spec.affinity"),
    *(".spec.containers[]", ".spec.containers[].resources"),
)
"""Objects of the template that keep unknown fields, so that an admission policy refuses these;
otherwise the API server would drop them from a request that does not ask for validation."""
_DROPPED_DEFAULTS: Final = ("spec.sandbox", "spec.store", "spec.store.uri")
"""Fields whose default makes sense on one machine only."""
_DROPPED_BOUNDS: Final = {
    "spec.parallelism": "minimum",
    "spec.workers.labels{}": "pattern",
    f"{_TEMPLATE}.metadata.labels{{}}": "pattern",
    "spec.workers.nodeSelector{}": "pattern",
    f"{_TEMPLATE}.spec.nodeSelector{{}}": "pattern",
}
"""Keywords of the models that a rule checks instead, with a message that says how to fix it."""
_BOUNDS: Final[Mapping[str, Mapping[str, Json]]] = {
    "metadata.name": {"maxLength": 253},
    "spec.parallelism": {"format": "int32"},
    "spec.extensions[].sha256": {"maxLength": 64},
}
"""Bounds that the models do not have: the API server estimates the cost of rules by them."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get rj`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    """Shown by `-o wide` only."""
    description: str = ""

    def to_json(self) -> dict[str, Json]:
        """Return the column as the API server reads it."""
        found: dict[str, Json] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            found["description"] = self.description
        return found | ({"priority": 1} if self.wide else {})


def _rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name(name).read_text("utf-8"))
    return rows


COLUMNS: Final = [Column(**row) for row in _rows("columns.yaml")]


@dataclass(frozen=True, slots=True)
class ClusterRule:
    """A CEL expression that must hold for the value at `path`, and its error message."""

    path: str
    """Path as in `Schema.at`; empty for the whole object."""
    expression: str
    message: str
    """The problem and how to fix it."""
    reason: str
    """The API server's machine-readable reason for a violation."""
    field: str
    """The offending field inside the value, such as `.store`; empty for the value itself."""


@cache
def rules() -> tuple[ClusterRule, ...]:
    """Return all rules, in the order of the fields."""
    return tuple(
        ClusterRule(
            path,
            each["rule"],
            each["message"],
            each.get("reason", "FieldValueInvalid"),
            each.get("field", ""),
        )
        for each in _rows("cluster_rules.yaml")
        for path in each["paths"]
    )


def custom_resource_definition() -> dict[str, Json]:
    """Return the whole definition, ready to be written as YAML."""
    schema = job_schema().to_json()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": CRD_NAME,
            "annotations": {SCHEMA_ANNOTATION: _digest(schema)},
            "labels": {"app.kubernetes.io/part-of": "swe-rollout"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": SINGULAR,
                "shortNames": ["rj"],
                "categories": ["swe"],
            },
            "versions": [_version(schema)],
        },
    }


def schema_digest() -> str:
    """Return 12 hex characters that are equal where two sides have the same schema."""
    return _digest(job_schema().to_json())


@cache
def job_schema() -> Schema:
    """Return the schema of a RolloutJob as the API server checks it."""
    schema = structural(RolloutJob)
    schema.properties = {
        "apiVersion": Schema("string", f"`{API_VERSION}`."),
        "kind": Schema("string", f"`{KIND}`."),
        "metadata": Schema("object", properties={"name": Schema("string")}),
        "spec": schema.properties["spec"],
        "status": _status(),
    }
    schema.required = ("spec",)
    for path in _OPEN:
        schema.at(f"{_TEMPLATE}{path}").keywords["x-kubernetes-preserve-unknown-fields"] = True
    for path in _DROPPED_DEFAULTS:
        schema.at(path).default = None
    for each in schema.at("spec").inside():
        _tell_default(each)
    for path, keyword in _DROPPED_BOUNDS.items():
        del schema.at(path).keywords[keyword]
    for path, keywords in _BOUNDS.items():
        schema.at(path).keywords |= keywords
    for rule in rules():
        _add(schema.at(rule.path), rule)
    return schema


def _version(schema: dict[str, Json]) -> dict[str, Json]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [column.to_json() for column in COLUMNS],
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.parallelism",
                "statusReplicasPath": ".status.episodes.running",
                "labelSelectorPath": ".status.selector",
            },
        },
        "schema": {"openAPIV3Schema": schema},
    }


def _status() -> Schema:
    """The status: nothing is filled in, and conditions are told apart by their type."""
    status = structural(RolloutJobStatus)
    for each in status.inside():
        each.default = None
    status.at("conditions").keywords |= {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }
    for path in ("conditions[].lastTransitionTime", "startTime", "completionTime"):
        status.at(path).keywords["format"] = "date-time"
    return status


def _tell_default(schema: Schema) -> None:
    """`kubectl explain` shows descriptions, and no defaults."""
    if schema.default not in (None, {}):
        schema.description = f"{schema.description} Default: {written(schema.default)}.".strip()


def written(value: Json) -> str:
    """Return a value as people write it in YAML, on one line."""
    match value:
        case dict():
            return f"{{{', '.join(f'{key}: {written(each)}' for key, each in value.items())}}}"
        case list():
            return f"[{', '.join(map(written, value))}]"
        case bool() | None:
            return json.dumps(value)
        case _:
            return str(value)


def _add(schema: Schema, rule: ClusterRule) -> None:
    found = schema.keywords.setdefault("x-kubernetes-validations", [])
    if not isinstance(found, list):
        raise TypeError(f"the rules of {rule.path} are no list")
    entry: dict[str, Json] = {"rule": rule.expression, "message": rule.message}
    entry["reason"] = rule.reason
    if rule.field:
        entry["fieldPath"] = rule.field
    found.append(entry)


def _digest(schema: dict[str, Json]) -> str:
    text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
