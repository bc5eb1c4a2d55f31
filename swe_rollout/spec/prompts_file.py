"""Read the prompts that a job keeps in a file of their own, into its fields.

What is rendered then stands in the job itself: a worker elsewhere has no such file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from swe_rollout.errors import Problem, SpecError, why_missing
from swe_rollout.spec.bounds import Text
from swe_rollout.spec.document import MAX_CHARS, read_document
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.messages import message_for
from swe_rollout.spec.model import Model

_YAML = {".yaml", ".yml"}


class PromptTexts(Model):
    """The prompts of a file."""

    system_prompt: Text | None = None
    instance_prompt: Text | None = None


def with_prompts_file(job: RolloutJob, folder: Path) -> RolloutJob:
    """Return the job with the prompts of its `agent.promptsFile`, a path relative to `folder`.

    Fields that the job sets itself stay. Raises SpecError for a file that can't be read.
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
    return job.model_copy(update={"spec": job.spec.model_copy(update={"agent": changed})})


def read_prompts(path: Path) -> PromptTexts:
    """Read a file of prompts: YAML with their names, or a text, which is the system prompt."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(MAX_CHARS + 1)
    except UnicodeDecodeError as error:
        raise _error(path, [Problem(str(path), "", "not UTF-8 text")]) from error
    except OSError as error:
        message = f"can't be read: {why_missing(path) or error.strerror}"
        raise _error(path, [Problem(str(path), "", message)]) from error
    value: object = {"system_prompt": text}
    if path.suffix in _YAML:
        document = read_document(text, source=str(path))
        if document.problems:
            raise _error(path, document.problems)
        value = document.value
    try:
        return PromptTexts.model_validate(value)
    except ValidationError as error:
        problems = [
            Problem(str(path), ".".join(map(str, each["loc"])), message_for(each))
            for each in error.errors(include_url=False)
        ]
        raise _error(path, problems) from None


def _error(path: Path, problems: Sequence[Problem]) -> SpecError:
    return SpecError(
        f"{path} holds no prompts",
        list(problems),
        fix="write YAML with `systemPrompt` and `instancePrompt`, or the system prompt as a text",
    )
