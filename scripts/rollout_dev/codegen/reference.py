"""The generated parts of the pages of a RolloutJob and of the built-in reward terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rollout_dev.codegen.cluster_rules import rules
from rollout_dev.codegen.crd import COLUMNS, job_schema
from rollout_dev.codegen.pages import field_table, table
from rollout_dev.codegen.structural import Schema
from swe_rollout.spec.fields import all_fields, fields_of
from swe_rollout.spec.reward_terms import OPTIONS


def job_blocks() -> dict[str, Iterable[str]]:
    """Return every field of a job, every cluster rule, the status, and kubectl's columns."""
    columns = (
        (each.name, each.path, "`-o wide`" if each.wide else "always", each.description)
        for each in COLUMNS
    )
    status = _status_rows(job_schema().at("status"), "")
    return {
        "fields": _fields(),
        "rules": table(("field", "message"), _rule_rows()),
        "status": table(("field", "type", "meaning"), status),
        "columns": table(("column", "from", "shown", "meaning"), columns),
    }


def reward_blocks() -> dict[str, Iterable[str]]:
    """Return the options of each built-in reward term."""
    return {"options": _options()}


def _fields() -> Iterator[str]:
    fields = all_fields()
    for parent in dict.fromkeys(field.path[:-1] for field in fields):
        if parent:
            yield f"## {'.'.join(parent)}\n"
        yield from field_table(field for field in fields if field.path[:-1] == parent)


def _options() -> Iterator[str]:
    for model in dict.fromkeys(OPTIONS.values()):
        terms = " and ".join(f"`{name}`" for name, each in OPTIONS.items() if each is model)
        yield f"## Options of {terms}\n"
        yield from field_table(fields_of(model), "option")


def _rule_rows() -> Iterator[tuple[str, ...]]:
    paths_by_message: dict[str, list[str]] = {}
    for rule in rules():
        message = rule.message
        if rule.path.startswith("spec.") and rule.expression == "self == oldSelf":
            message = message.replace(f"`{rule.path.removeprefix('spec.')}` ", "it ")
        paths_by_message.setdefault(message, []).append(rule.path or rule.field.removeprefix("."))
    for message, paths in paths_by_message.items():
        yield ", ".join(f"`{path.strip('{}[]')}`" for path in dict.fromkeys(paths)), message


def _status_rows(schema: Schema, parent: str) -> Iterator[tuple[str, ...]]:
    for name, each in schema.properties.items():
        path = f"{parent}{name}"
        choices = each.keywords.get("enum")
        kind = f"one of {', '.join(map(str, choices))}" if isinstance(choices, list) else each.type
        yield f"`{path}`", kind, each.description
        yield from _status_rows(each, f"{path}.")
        if each.items is not None:
            yield from _status_rows(each.items, f"{path}[].")
