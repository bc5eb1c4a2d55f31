"""Read `cluster_rules.yaml`: the CEL rules that the API server checks before it stores a job.

Used by `crd`, and by the reference page, which lists the messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class ClusterRule:
    """A CEL expression that must hold for the value at `path`, and its error message."""

    path: str
    """Path as in `Schema.at`; empty for the whole object."""
    expression: str
    message: str
    """The problem and how to fix it."""
    reason: str = "FieldValueInvalid"
    """The API server's machine-readable reason for a violation."""
    field: str = ""
    """The offending field inside the value, such as `.store`; empty for the value itself."""


@cache
def rules() -> tuple[ClusterRule, ...]:
    """Return all rules, in the order of the fields."""
    text = Path(__file__).with_suffix(".yaml").read_text("utf-8")
    return tuple(
        ClusterRule(path, entry["rule"], entry["message"], *_more(entry))
        for entry in yaml.safe_load(text)
        for path in entry["paths"]
    )


def _more(entry: dict[str, str]) -> tuple[str, str]:
    return entry.get("reason", "FieldValueInvalid"), entry.get("field", "")
