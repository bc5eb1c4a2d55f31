"""The generated parts of reference pages: jobs, reward terms, metrics, options of commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from prometheus_client.metrics_core import Metric as Family

from rollout_dev.codegen.crd import COLUMNS, job_schema, rules
from rollout_dev.codegen.pages import field_table
from rollout_dev.codegen.structural import Schema
from rollout_dev.report import table
from rollout_operator.metrics import Metrics
from rollout_operator.observed import ObservedJob
from swe_rollout.cli.main import build_command
from swe_rollout.cli.verbs import name_variables
from swe_rollout.gateway.dialects.fields import Rule
from swe_rollout.gateway.dialects.fields import rules as request_rules
from swe_rollout.spec.fields import all_fields, fields_of
from swe_rollout.spec.reward_terms import OPTIONS
from swe_rollout.telemetry.catalog import METRICS, Kind, Metric


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


def gateway_blocks() -> dict[str, Iterable[str]]:
    """Return what becomes of the fields of requests, for each API."""
    return {
        api: table(("field", "", "why"), map(_request_row, found))
        for api, found in request_rules().items()
    }


def _request_row(rule: Rule) -> tuple[str, ...]:
    names = ", ".join(f"`{name}`" for name in (*rule.read, *rule.fields))
    if not rule.refused:
        return names, "read" if rule.read else "left out", rule.left_out
    values = ", ".join(
        f"`{msgspec.json.encode(each).decode()}`" for each in rule.when or rule.unless
    )
    refused = f"refused with {values}" if rule.when else f"refused, unless {values}"
    return names, refused if values else "refused", rule.refused


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


def metrics_blocks() -> dict[str, Iterable[str]]:
    """Return the tables of metrics, and of the buckets of histograms."""
    header = ("metric", "type", "labels", "meaning")
    return {
        "workers": table(header, map(_row, METRICS)),
        "buckets": table(("histogram", "upper bounds"), _buckets()),
        "operator": table(header, map(_operator_row, operator_families())),
    }


def operator_families() -> tuple[Family, ...]:
    """Return what the operator serves, with a sample of each metric that has labels."""
    metrics = Metrics()
    metrics.action_started("create-workers")
    metadata = {
        "name": "demo",
        "namespace": "team",
        "uid": "0",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    job = ObservedJob.of(msgspec.to_builtins({"metadata": metadata, "spec": {}}))
    metrics.serve(0, lambda: [job])()
    return tuple(metrics.registry.collect())


def questions(page: str) -> dict[str, str]:
    """Return the questions of the page and the queries that answer them."""
    rows = re.findall(r"^\| ([^|]*\?) \| `(.+)` \|$", page, re.MULTILINE)
    return {asked: query.replace(r"\|", "|") for asked, query in rows}


def _row(metric: Metric) -> tuple[str, ...]:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return (f"`{metric.name}`", metric.kind.value, labels, metric.help.rstrip("."))


def _operator_row(family: Family) -> tuple[str, ...]:
    suffix = "_total" if family.type == "counter" else ""
    names = sorted({name for sample in family.samples for name in sample.labels} - {"le"})
    labels = ", ".join(f"`{name}`" for name in names)
    meaning = family.documentation.rstrip(".")
    return (f"`{family.name}{suffix}`", family.type, labels, meaning)


def _buckets() -> Iterator[tuple[str, str]]:
    for metric in METRICS:
        if metric.kind is Kind.HISTOGRAM:
            yield f"`{metric.name}`", ", ".join(f"{bound:g}" for bound in metric.buckets)


def variable_blocks() -> dict[str, Iterable[str]]:
    """Return the list of every option of the command line and its variable."""
    return {"options": _variables()}


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every verb that help lists, with its path."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        elif not command.hidden:
            yield (*path, name), command


def variables(path: tuple[str, ...], command: Any) -> dict[str, str]:
    """Return the variable of each option of a verb, by the option's names."""
    prefix = "_".join(("SWE_ROLLOUT", *(part.upper().replace("-", "_") for part in path)))
    name_variables(command.params, prefix)
    return {
        ", ".join(sorted(each.opts, key=len)): each.envvar
        for each in command.params
        if each.param_type_name == "option" and not each.is_eager
    }


def _variables() -> Iterator[str]:
    group = build_command()
    rows = [
        ("swe-rollout", "-v, --verbose", "SWE_ROLLOUT_VERBOSE", "Log more, to stderr: 1 or 2."),
        ("swe-rollout", "-q, --quiet", "SWE_ROLLOUT_QUIET", "Log errors only."),
    ]
    for path, command in commands(group):
        helps = {", ".join(sorted(each.opts, key=len)): each for each in command.params}
        for option, variable in variables(path, command).items():
            about = re.sub(r"([*_<])", r"\\\1", helps[option].help or "")
            rows.append((" ".join(path), option, variable, about))
    shown = ((verb, f"`{option}`", f"`{name}`", about) for verb, option, name, about in rows)
    yield from table(("verb", "option", "variable", "meaning"), shown)
