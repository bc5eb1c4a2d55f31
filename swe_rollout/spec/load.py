"""Load job files: YAML to `RolloutJob`, or all problems at once, each with its line.

`document` parses the text, `overrides` applies `--set`, `messages` words pydantic's findings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from swe_rollout.errors import Problem, SpecError, why_missing
from swe_rollout.spec.document import Document, FieldPath, dotted, read_document
from swe_rollout.spec.job import API_VERSION, KIND, RolloutJob
from swe_rollout.spec.messages import message_for
from swe_rollout.spec.overrides import Overridden, override
from swe_rollout.spec.prompts_file import with_prompts_file


def load_job(path: Path, overrides: Sequence[str] = ()) -> RolloutJob:
    """Load the job in the file `path`; raises SpecError with all problems."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _error(
            str(path), [Problem(str(path), "", "not UTF-8 text; save it as UTF-8")]
        ) from error
    except OSError as error:
        name = re.sub(r"^(\w+):/(?=[^/])", r"\1://", str(path))  # an address that became a path
        why = "it is an address" if "://" in name else why_missing(path) or error.strerror
        raise SpecError(
            f"{name} is no file that can be read",
            [Problem(name, "", f"can't be read: {why}")],
            fix=_file_meant(path),
        ) from error
    job = parse_job(text, source=str(path), overrides=overrides)
    return with_prompts_file(job, path.absolute().parent)


def parse_job(text: str, *, source: str, overrides: Sequence[str] = ()) -> RolloutJob:
    """Parse the job in `text`, with `a.b=c` overrides; problems name `source` as their file."""
    document = read_document(text, source=source)
    if not isinstance(document.value, dict):
        raise _error(source, document.problems or [_not_a_job(document, source)])
    changed = override(document.value, overrides)
    problems = [*document.problems, *changed.problems]
    problems += _headers(changed.value, source)
    try:
        job = RolloutJob.model_validate_json(
            json.dumps(changed.value), strict=True, by_alias=True, by_name=False
        )
    except ValidationError as error:
        problems += [
            _problem(details, document, changed, source)
            for details in error.errors(include_url=False)
            # A default that depends on a field with a problem of its own.
            if details["type"] != "default_factory_not_called" and message_for(details)
        ]
        raise _error(source, problems) from None
    if problems:
        raise _error(source, problems)
    return job


def _file_meant(path: Path) -> str:
    """Return which file may have been meant."""
    if str(path) == "-":
        return "a job is read from a file and not from stdin: cat > job.yaml"
    if path.parts[:1] and path.parts[0].endswith(":"):  # `https:/…`, as a path
        return "a job is read from a file of this machine: download it first"
    folder = path if path.is_dir() else path.parent
    names = [each.name for each in folder.glob("*.y*ml")] if folder.is_dir() else []
    close = get_close_matches("job.yaml" if path.is_dir() else path.name, names, n=1)
    if close:
        return f"did you mean {folder / close[0]}?"
    return f"name a job file; `swe-rollout init {path.with_suffix('.yaml')}` writes one"


def _error(source: str, problems: Sequence[Problem]) -> SpecError:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return SpecError(
        f"{source} is not a valid RolloutJob: {count}",
        sorted(dict.fromkeys(problems), key=_order),
        fix="`swe-rollout explain spec` lists the fields; `swe-rollout init` writes a valid file",
    )


def _order(problem: Problem) -> tuple[bool, int]:
    """Sort key: by line, overrides last."""
    line = problem.place.rpartition(":")[2]
    return not line.isdecimal(), int(line) if line.isdecimal() else 0


def _not_a_job(document: Document, source: str) -> Problem:
    if document.value is None:
        return Problem(source, "", "empty; `swe-rollout init` writes a job file to start from")
    found = "a list" if isinstance(document.value, list) else "plain text"
    hint = "; remove the `- ` in front" if isinstance(document.value, list) else ""
    return Problem(f"{source}:1", "", f"expected the fields of a {KIND}, found {found}{hint}")


def _headers(value: object, source: str) -> Iterator[Problem]:
    """Require the headers: `kubectl` needs both, so a file without them could not be applied."""
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if isinstance(value, dict) and name not in value:
            yield Problem(f"{source}:1", name, f"missing; write `{name}: {expected}`")


def _problem(
    details: ErrorDetails, document: Document, changed: Overridden, source: str
) -> Problem:
    path = details["loc"]
    name = dotted(path)
    place = _override_of(path, changed) or f"{source}:{document.line(path)}"
    return Problem(place, "" if place.endswith(f" {name}") else name, message_for(details))


def _override_of(path: FieldPath, changed: Overridden) -> str | None:
    """The `--set` that wrote `path` or a field inside it: one-of problems are on the parent."""
    for at, place in reversed(changed.places.items()):
        if path[: len(at)] == at or at[: len(path)] == path:
            return place
    return None
