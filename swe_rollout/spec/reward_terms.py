"""The options of the built-in reward terms, as written under `with`.

They are checked when a job is read, so that errors point to a line in the job file. The string
under an option is its documentation everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Self, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from swe_rollout.spec.bounds import Seconds, Text
from swe_rollout.spec.model import Model, OneOf, Use, variant
from swe_rollout.spec.policy import AnthropicPolicy, OpenaiPolicy

_VARIABLE: Final = r"[A-Za-z_][A-Za-z0-9_]*"
T = TypeVar("T", bound=Model)
_Score = Annotated[float, Field(ge=-1e6, le=1e6)]
_Count = Annotated[int, Field(ge=0, le=2**40)]


class Tests(StrEnum):
    """Which of the expected tests count."""

    ALL = "all"
    FAIL_TO_PASS = "fail_to_pass"  # noqa: S105 - a list of tests
    PASS_TO_PASS = "pass_to_pass"  # noqa: S105 - a list of tests


class FractionOptions(Model):
    """Options of `fraction`: the share of the expected tests with the required outcome."""

    tests: Tests = Tests.ALL
    """The tests that count: `all`, `fail_to_pass` or `pass_to_pass`. If most tests pass without any
    fix, use `fail_to_pass`; otherwise, doing nothing earns their share."""


class BudgetOptions(Model):
    """Options of `length`, in sampled tokens, and `turns`: a linear fall between two bounds."""

    free: _Count
    """Up to this many, the score is `best`."""
    limit: _Count
    """From this many on, the score is `worst`; in between, it falls linearly."""
    best: _Score = 0.0
    """The score of a short episode. With `best: 1` and `worst: 0`, the term is a bonus."""
    worst: _Score = -1.0
    """The score of a long one."""

    @model_validator(mode="after")
    def _falls(self) -> Self:
        if self.free >= self.limit:
            raise ValueError("free must be below limit")
        return self


class FormatOptions(Model):
    """Options of `format`: the share of the tool calls that could be run as sampled."""

    without_calls: _Score = 0.0
    """The score of an episode without any call."""


JUDGE_PROMPT: Final = """\
Grade how well this diff resolves the issue. A high score is for a change that is correct, \
complete and no larger than it has to be; a low one for a change that misses the cause, breaks \
something else, or only pleases tests.

{problem_statement}

{patch}"""


class JudgeOptions(OneOf):
    """Options of `judge`: a model that reads the issue and the diff and responds with a number. Set
    exactly one of `openai`, `anthropic` and `chat`.
    """

    openai: OpenaiPolicy | None = variant()
    """A server with OpenAI's chat completions, such as SGLang's at `/v1`; as `policy.openai`."""
    anthropic: AnthropicPolicy | None = variant()
    """A server with Anthropic's messages; as `policy.anthropic`."""
    chat: Use | None = variant()
    """A function of your own that responds to a conversation; as `policy.chat`."""
    prompt: Text = JUDGE_PROMPT
    """The judge's prompt. `{patch}` and `{problem_statement}` are filled in, between markers; the
    harness adds the format of the response."""
    lowest: _Score = 0.0
    """The lowest score the judge may give, and the score of an empty diff, which is not judged."""
    highest: _Score = 1.0
    """The highest score the judge may give."""
    patch_chars: Annotated[int, Field(ge=1000, le=2**24)] = 60_000
    """Limit for the characters of the diff and of the issue; the middle of a longer text is cut out
    and marked."""
    max_tokens: Annotated[int, Field(ge=1, le=2**20)] = 2048
    """Limit for the tokens of one response."""
    temperature: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The judge's sampling temperature."""
    attempts: Annotated[int, Field(ge=1, le=10)] = 3
    """How many responses to request at most until one has a score in its last line."""
    seconds: Seconds = 600.0
    """Time limit for judging one episode, including all attempts and retries."""

    @field_validator("prompt")
    @classmethod
    def _shows_the_patch(cls, value: str) -> str:
        if "{patch}" not in value:
            raise ValueError("a text with {patch} in it")
        return value

    @model_validator(mode="after")
    def _names_its_key(self) -> Self:
        for api in (self.openai, self.anthropic):
            if api and api.api_key_env and not re.fullmatch(_VARIABLE, api.api_key_env):
                raise ValueError("apiKeyEnv is the name of an environment variable, never the key")
        return self

    @model_validator(mode="after")
    def _has_a_range(self) -> Self:
        if self.lowest >= self.highest:
            raise ValueError("lowest must be below highest")
        return self


OPTIONS: Final[Mapping[str, type[Model]]] = {
    "fraction": FractionOptions,
    "length": BudgetOptions,
    "turns": BudgetOptions,
    "format": FormatOptions,
    "judge": JudgeOptions,
}
"""Options by term. `resolved` and `reward_file` have none."""


def read_options(model: type[T], given: Mapping[str, object]) -> T:
    """Read the options of a term. Raises ValueError with each problem and its place."""
    try:
        return model.model_validate_json(json.dumps(dict(given)), strict=True)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        raise ValueError("; ".join(_problem(model, each) for each in details)) from None
    except TypeError as error:
        raise ValueError(f"options are plain values: {error}") from None


def _problem(model: type[Model], details: ErrorDetails) -> str:
    place = ".".join(str(part) for part in details["loc"])
    match details["type"]:
        case "extra_forbidden" if len(details["loc"]) == 1:
            names = (info.alias or name for name, info in model.model_fields.items())
            message = f"no such option; there are {', '.join(names)}"
        case "extra_forbidden":
            message = "no such field"
        case "missing":
            message = "missing"
        case "value_error":
            message = str(details.get("ctx", {}).get("error", details["msg"]))
        case _:
            message = details["msg"][:1].lower() + details["msg"][1:]
    return f"{place}: {message}" if place else message
