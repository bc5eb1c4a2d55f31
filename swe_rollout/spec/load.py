"""Load job files: from YAML to `RolloutJob`, or to all problems at once, each with its line.

`document` parses the text, and `messages` words pydantic's findings; `--set` and a job's prompts
file are applied here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from swe_rollout.errors import Problem, SpecError, UsageError
from swe_rollout.spec.bounds import Text
from swe_rollout.spec.document import MAX_CHARS, Document, FieldPath, dotted, read_document
from swe_rollout.spec.job import API_VERSION, KIND, RolloutJob
from swe_rollout.spec.messages import message_for
from swe_rollout.spec.model import NOT_PLAIN, Model
from swe_rollout.text.paths import file_meant, why_missing


@dataclass(frozen=True, slots=True)
class Setting:
    """A field that an option of its own sets."""

    option: str
    """The option, as problems name it."""
    path: FieldPath
    value: object


def load_job(path: Path, overrides: Sequence[str | Setting] = ()) -> RolloutJob:
    """Load the job in the file `path`, whose folder is where relative paths start.

    Raises SpecError with all problems.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(MAX_CHARS + 1)  # a dataset, given in place of a job, may be huge
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
            fix=_file_meant(path, error),
        ) from error
    folder = path.absolute().parent
    job = parse_job(text, source=str(path), overrides=overrides, folder=folder)
    return with_prompts_file(job, folder)


def parse_job(
    text: str,
    *,
    source: str,
    overrides: Sequence[str | Setting] = (),
    folder: Path | None = None,
) -> RolloutJob:
    """Parse the job in `text`, with `a.b=c` overrides; problems name `source` as their file.

    Relative paths start at `folder`; without one, they are kept.
    """
    document = read_document(text, source=source)
    if not isinstance(document.value, dict):
        raise _error(source, document.problems or [_not_a_job(document, source)])
    changed = override(document.value, overrides)
    problems = [*document.problems, *changed.problems]
    problems += _headers(changed.value, source)
    value = changed.value
    if isinstance(value, dict) and isinstance(spec := value.get("spec"), dict):
        value = {**value, "spec": {"store": {}, **spec}}  # its default is relative to the file too
    try:
        job = RolloutJob.model_validate_json(
            json.dumps(value), strict=True, by_alias=True, by_name=False, context=folder
        )
    except ValidationError as error:
        problems += [
            _problem(details, document, changed, source)
            for details in error.errors(include_url=False)
            # A default that depends on an invalid field.
            if details["type"] != "default_factory_not_called" and message_for(details)
        ]
        raise _error(source, problems) from None
    if problems:
        raise _error(source, problems)
    return job


def parse_spec(spec: Mapping[str, object], *, name: str, source: str) -> RolloutJob:
    """Parse the content of a job file's `spec:`. Raises SpecError with all problems."""
    headers = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}}
    try:
        text = json.dumps({**headers, "spec": {**spec}})
    except (TypeError, ValueError) as error:
        problem = Problem(source, "spec", f"not plain JSON: {error}")
        raise _error(source, [problem]) from error
    return parse_job(text, source=source)


def _file_meant(path: Path, error: OSError) -> str:
    """Suggest the file that may have been meant."""
    if str(path) == "-":
        return "a job is read from a file and not from stdin: cat > job.yaml"
    if path.parts[:1] and path.parts[0].endswith(":"):  # `https:/…`, as a path
        return "a job is read from a file of this machine: download it first"
    meant = file_meant(path, (".yaml", ".yml"))
    if isinstance(error, IsADirectoryError):
        path /= "job.yaml"
        meant = path if path.is_file() else file_meant(path, (".yaml", ".yml"))
    if meant is not None:
        return f"did you mean {meant}?"
    return f"name a job file; `swe-rollout init {path.with_suffix('.yaml')}` writes one"


def _error(source: str, problems: Sequence[Problem]) -> SpecError:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    options = " with these options" if any(p.place.startswith("--") for p in problems) else ""
    return SpecError(
        f"{source}{options} is not a valid RolloutJob: {count}",
        sorted(dict.fromkeys(problems), key=_order),
        fix="`swe-rollout explain spec` lists the fields; `swe-rollout init` writes a valid file",
    )


def _order(problem: Problem) -> tuple[bool, int]:
    """Return a sort key: by line, overrides last."""
    line = problem.place.rpartition(":")[2]
    return not line.isdecimal(), int(line) if line.isdecimal() else 0


def _not_a_job(document: Document, source: str) -> Problem:
    if document.value is None:
        return Problem(source, "", "empty; `swe-rollout init` writes a job file to start from")
    found = "a list" if isinstance(document.value, list) else "plain text"
    hint = "; remove the `- ` in front" if isinstance(document.value, list) else ""
    return Problem(f"{source}:1", "", f"expected the fields of a {KIND}, found {found}{hint}")


def _headers(value: object, source: str) -> Iterator[Problem]:
    """Require both headers: without them, `kubectl` could not apply the file."""
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if isinstance(value, dict) and name not in value:
            yield Problem(f"{source}:1", name, f"missing; write `{name}: {expected}`")


def _problem(
    details: ErrorDetails, document: Document, changed: Overridden, source: str
) -> Problem:
    path = details["loc"]
    if details["type"] == NOT_PLAIN:
        path = (*path, *details["ctx"]["at"])
    name = dotted(path)
    place = _override_of(path, changed) or f"{source}:{document.line(path)}"
    is_named = place.endswith(f" {name}") or changed.places.get(path) == place
    return Problem(place, "" if is_named else name, message_for(details))


def _override_of(path: FieldPath, changed: Overridden) -> str | None:
    """Return the option that wrote `path` or a field in it: one-of problems are the parent's."""
    for at, place in reversed(changed.places.items()):
        if path[: len(at)] == at or at[: len(path)] == path:
            return place
    return None


@dataclass(frozen=True, slots=True)
class Overridden:
    """A value with overrides applied, the paths they set, and their problems."""

    value: object
    places: dict[FieldPath, str]
    """The option, such as `--set spec.samples` or `--store`, for each path that was set."""
    problems: tuple[Problem, ...]


def override(value: object, overrides: Sequence[str | Setting]) -> Overridden:
    """Apply each `a.b=c` in order; the right side is YAML, and `null` removes a field."""
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
        setting, found = (text, ()) if isinstance(text, Setting) else _parsed(text)
        problems += found
        if setting is None:
            continue
        changed = _set(result, setting.path, setting.value)
        if isinstance(changed, Problem):
            problems.append(Problem(setting.option, "", changed.message))
        else:
            result = changed
            places[setting.path] = setting.option
    return Overridden(result, places, tuple(problems))


def _parsed(text: str) -> tuple[Setting | None, Sequence[Problem]]:
    """Parse one `a.b=c`; return it unless it has no value, and its problems."""
    name, equals, right = text.partition("=")
    place = f"--set {name}"
    path = tuple(part.strip() for part in name.split("."))
    if match := re.search(r"\[\d+\]", name):
        message = f"a list is set as a whole: --set '{name[: match.start()]}=[…]'"
    elif not equals or not all(path):
        place, message = f"--set {text}", "write it as path=value: spec.samples=4"
    elif not right.strip():
        # Usually an empty shell variable, which must not silently remove the field.
        message = f"nothing behind `=`; write a value, or {name}=null to remove the field"
    else:
        document = read_document(right, source=place)
        found = [Problem(place, "", problem.message) for problem in document.problems]
        return Setting(place, path, document.value), found
    return None, (Problem(place, "", message),)


def _set(value: object, path: FieldPath, new: object) -> object:
    """Return a copy of `value` with `path` set, or the problem that prevents it."""
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


_YAML = {".yaml", ".yml"}


class PromptTexts(Model):
    """The prompts in a prompts file."""

    system_prompt: Text | None = None
    instance_prompt: Text | None = None


def with_prompts_file(job: RolloutJob, folder: Path) -> RolloutJob:
    """Return the job with the prompts from its `agent.promptsFile`, relative to `folder`.

    Prompts that the job sets itself are kept. Raises SpecError if the file can't be read.
    """
    agent = job.spec.agent
    if agent.prompts_file is None:
        return job
    found = read_prompts(folder / agent.prompts_file)
    texts = {
        name: text
        for name in PromptTexts.model_fields
        if (text := getattr(found, name)) is not None and name not in agent.model_fields_set
    }
    changed = agent.model_copy(update={**texts, "prompts_file": None})
    return job.with_spec(agent=changed)


def read_prompts(path: Path) -> PromptTexts:
    """Read a prompts file: YAML with named prompts, or plain text, the system prompt."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(MAX_CHARS + 1)
    except UnicodeDecodeError as error:
        raise _no_prompts(path, [Problem(str(path), "", "not UTF-8 text")]) from error
    except OSError as error:
        message = f"can't be read: {why_missing(path) or error.strerror}"
        raise _no_prompts(path, [Problem(str(path), "", message)]) from error
    value: object = {"system_prompt": text}
    if path.suffix in _YAML:
        document = read_document(text, source=str(path))
        if document.problems:
            raise _no_prompts(path, document.problems)
        value = document.value
    try:
        return PromptTexts.model_validate(value)
    except ValidationError as error:
        problems = [
            Problem(str(path), ".".join(map(str, each["loc"])), message_for(each))
            for each in error.errors(include_url=False)
        ]
        raise _no_prompts(path, problems) from None


def _no_prompts(path: Path, problems: Sequence[Problem]) -> SpecError:
    return SpecError(
        f"{path} holds no prompts",
        list(problems),
        fix="write YAML with `systemPrompt` and `instancePrompt`, or the system prompt as a text",
    )
