"""Apply overrides such as `--set spec.samples=4` to a document, with errors as good as its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swe_rollout.errors import Problem, UsageError
from swe_rollout.spec.document import FieldPath, read_document


@dataclass(frozen=True, slots=True)
class Overridden:
    """A value with overrides applied, the paths they set, and their problems."""

    value: object
    places: dict[FieldPath, str]
    """`--set spec.samples` for each path that was set."""
    problems: tuple[Problem, ...]


def override(value: object, overrides: Sequence[str]) -> Overridden:
    """Set each `a.b=c` in order; the right side is YAML, and `null` removes a field."""
    if isinstance(overrides, str | Mapping):
        raise UsageError(
            "overrides are no list",
            why=f"one {type(overrides).__name__} was given",
            fix='write a list of texts: ["spec.samples=4", "spec.limits.turns=20"]',
        )
    result = value
    places: dict[FieldPath, str] = {}
    problems: list[Problem] = []
    for text in overrides:
        name, equals, right = text.partition("=")
        place = f"--set {name}"
        path = tuple(part.strip() for part in name.split("."))
        if match := re.search(r"\[\d+\]", name):
            whole = name[: match.start()]
            message = f"a list is set as a whole: --set '{whole}=[…]'"
            problems.append(Problem(f"--set {name}", "", message))
            continue
        if not equals or not all(path):
            problems.append(Problem(f"--set {text}", "", "write it as path=value: spec.samples=4"))
            continue
        if not right.strip():
            # Most often an empty variable of the shell, which must not remove the field unseen.
            message = f"nothing behind `=`; write a value, or {name}=null to remove the field"
            problems.append(Problem(place, "", message))
            continue
        document = read_document(right, source=place)
        problems += [Problem(place, "", problem.message) for problem in document.problems]
        changed = _set(result, path, document.value)
        if isinstance(changed, Problem):
            problems.append(Problem(place, "", changed.message))
        else:
            result = changed
            places[path] = place
    return Overridden(result, places, tuple(problems))


def _set(value: object, path: FieldPath, new: object) -> object:
    """A copy of `value` with `path` set, or the problem that prevents it."""
    head, *rest = path
    if value is not None and not isinstance(value, dict):
        return Problem("", "", f"{value!r:.40} has no fields, so `{head}` can't be set")
    fields: dict[object, object] = dict(value or {})
    if rest:
        new = _set(fields.get(head), tuple(rest), new)
        if isinstance(new, Problem):
            return new
    if new is None:
        fields.pop(head, None)
    else:
        fields[head] = new
    return fields
