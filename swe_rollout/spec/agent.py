"""The agent of a job. The string under a field is its documentation everywhere."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints, field_validator

from swe_rollout.spec.bounds import (
    Seconds,
    ShortText,
    Text,
)
from swe_rollout.spec.model import Model, Reference, ShortUse
from swe_rollout.spec.presets import preset_of

_UNSET: Final = Field(default=None, exclude_if=lambda value: value is None)


class ToolUse(ShortUse):
    """A tool or toolset: its name, or `{use: module:attr, with: {…}}`, and how it is offered."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = _UNSET
    """What the policy calls it; none: its own name. Not for a toolset."""
    description: Text | None = _UNSET
    """What the policy reads about it; none: its own description. Not for a toolset."""
    timeout_seconds: Seconds | None = _UNSET
    """Limit for one call; none: `limits.toolSeconds`."""
    output_bytes: Annotated[int, Field(ge=256, le=2**24)] | None = _UNSET
    """Limit for one result; none: `limits.toolOutputBytes`."""


class AgentSpec(Model):
    """The agent: its program, tools and prompts."""

    use: Annotated[Reference, Field(exclude_if=lambda use: use == "loop")] = "loop"
    """The agent program: `loop` takes turns until the policy submits or a limit is reached;
    `react`, `tool`, `coding`, `general` and `swe` are presets (docs/reference/agents.md) that bring
    defaults for the fields below."""
    with_: Annotated[
        dict[str, Any], Field(alias="with", exclude_if=lambda parameters: not parameters)
    ] = Field(default_factory=dict)
    """Its parameters."""
    tool_format: Reference = Field(
        default_factory=lambda fields: preset_of(fields.get("use")).tool_format
    )
    """The format of tool calls: a name from docs/reference/parsers.md or `module:attr`; auto: the
    one that the chat template shows. Presets may bring another."""
    tools: Annotated[tuple[ToolUse, ...], Field(max_length=32)] = Field(
        default_factory=lambda fields: tuple(
            ToolUse(use=name) for name in preset_of(fields.get("use")).tools
        )
    )
    """Tools and toolsets (docs/reference/tools.md) in the order they are offered: names, or
    `{use: module:attr, with: {…}}`; `name`, `description`, `timeoutSeconds` and `outputBytes` say
    how one is offered."""
    system_prompt: Text | None = Field(
        default_factory=lambda fields: preset_of(fields.get("use")).system_prompt
    )
    """Replaces the built-in system prompt; `{tools}` is filled in."""
    instance_prompt: Text | None = Field(
        default_factory=lambda fields: preset_of(fields.get("use")).instance_prompt
    )
    """Replaces the built-in task prompt; `{problem_statement}`, `{workdir}` and `{tools}` are
    filled in."""
    prompt_variables: Annotated[
        dict[str, Text], Field(max_length=64, exclude_if=lambda variables: not variables)
    ] = Field(default_factory=dict)
    """Further `{name}`s of both prompts, and what is filled in for them."""
    prompts_file: Annotated[ShortText | None, Field(exclude_if=lambda path: path is None)] = None
    """A file of prompts beside the job's: YAML with `systemPrompt` and `instancePrompt`, or a text,
    which is the system prompt. Read when the job file is; what the job says itself wins."""

    @field_validator("prompt_variables")
    @classmethod
    def _has_names(cls, value: dict[str, str]) -> dict[str, str]:
        if any(not name.isidentifier() or not name.isascii() for name in value):
            raise ValueError("names of letters, digits and `_`, and a text for each")
        return value
