"""Write the reference page of a RolloutJob: every field, every cluster rule, the status."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rollout_dev.codegen.cluster_rules import rules
from rollout_dev.codegen.crd import COLUMNS, job_schema, written
from rollout_dev.codegen.structural import Schema
from swe_rollout.spec.fields import SpecField, all_fields
from swe_rollout.spec.job import API_VERSION, CRD_NAME, KIND
from swe_rollout.spec.status import PROGRESS_ANNOTATION

_INTRO = f"""\
<!-- Made by scripts/generate; change swe_rollout/spec instead. -->
# RolloutJob

Every field of a job, from the models in [`swe_rollout/spec/`](../../swe_rollout/spec/job.py).
One schema stands behind this page, the YAML file, the Python model, `swe-rollout explain` and
`kubectl explain rolloutjob.spec`.

```yaml
apiVersion: {API_VERSION}
kind: {KIND}
metadata: {{name: my-job}}
spec:
  dataset: {{releasePairs: {{}}}}
  policy: {{scripted: {{}}}}
```
"""

_RULES = """\
## On a cluster

`swe-rollout run` accepts every job that fits the fields above. A cluster has more rules; the API
server checks them before it stores a job, and rejects it with these messages.
"""

_STATUS = f"""\
## status

Written by the operator, once in two seconds at most. Counters and conditions, never episodes: those
are in the store. Workers report by the annotation `{PROGRESS_ANNOTATION}` on their own pods.
"""

_COLUMNS = """\
## Columns of `kubectl get rj`
"""


def reference_page() -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRO
    fields = all_fields()
    for parent in dict.fromkeys(field.path[:-1] for field in fields):
        yield from _section(parent, [field for field in fields if field.path[:-1] == parent])
    yield _RULES
    yield from table(("field", "message"), _rule_rows())
    yield _STATUS
    status = job_schema().at("status")
    yield from table(("field", "type", "meaning"), _status_rows(status, ""))
    yield _COLUMNS
    rows = ((each.name, each.path, _shown(wide=each.wide), each.description) for each in COLUMNS)
    yield from table(("column", "from", "shown", "meaning"), rows)
    yield f"The definition itself is `kubectl get crd {CRD_NAME} -o yaml`."


def _section(parent: tuple[str, ...], fields: list[SpecField]) -> Iterator[str]:
    if parent:
        yield f"## {'.'.join(parent)}\n"
    rows = ((f"`{field.name}`", field.type, _default(field), field.doc) for field in fields)
    yield from table(("field", "type", "default", "meaning"), rows)


def _default(field: SpecField) -> str:
    if field.required:
        return "required"
    if field.type == "mapping" and field.path[0] == "spec":
        whole = job_schema().at(field.dotted).default
        return f"`{written(whole)}`" if whole else ""
    return f"`{field.default}`" if field.default else ""


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


def _shown(*, wide: bool) -> str:
    return "`-o wide`" if wide else "always"


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"
    yield ""


def _cell(text: str) -> str:
    return re.sub(r"\|", r"\\|", text)
