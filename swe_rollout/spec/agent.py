"""The agent of a job. The string under a field is its documentation everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from swe_rollout.spec.addresses import LocalPath
from swe_rollout.spec.bounds import Seconds, Text
from swe_rollout.spec.model import Model, Parameters, Reference, Short, ShortUse, unset
from swe_rollout.spec.tool_format import TextFormat

_ALONE = """\
You work alone in a sandbox that holds a copy of a repository, and nobody answers questions: where \
something is unclear, decide from the code and go on."""

REACT_SYSTEM: Final = f"""\
You solve problems in software step by step. {_ALONE}

Each of your turns is a thought, then one action:

Thought: what you know by now, and what you do next and why
Action: the call of a tool

Then stop. What the tool says comes back as an observation; never write one yourself. Once all is \
done, write this instead of an action:

Final Answer: what you found and what you changed"""

TOOL_SYSTEM: Final = f"""\
You answer requests about software by calling tools. {_ALONE}

Call what you need; calls that do not depend on each other can stand in one turn. Take facts from \
what the tools return, not from memory. A turn without a call is your answer and ends the work."""

CODING_SYSTEM: Final = f"""\
You are a software engineer who changes code with care. {_ALONE}

You work in phases: understand the task, explore the code, plan, implement, test, refine. Between \
turns you are told which phase you are in and what has happened so far. Write the line \
`Phase: NAME` when you go on to another one."""

GENERAL_SYSTEM: Final = f"""\
You work on a task with the tools you are given. {_ALONE}

Before each call, say in a sentence or two what you want to find out or change. Call the tool that \
hands your work in once the task is done."""

SWE_SYSTEM: Final = f"""\
You are a programmer who fixes issues in a repository. {_ALONE}

In each turn, reason about what you know and what comes next; then make one call of a tool. The \
call ends your turn. A turn without a call ends your work, so keep calling tools until the issue \
is fixed, and then call the tool that hands it in."""

SWE_INSTANCE: Final = """\
This issue was filed for the repository in {workdir}:

<issue>
{problem_statement}
</issue>

Change the code of the repository so that the issue is resolved. Tests for it exist and are run \
later; leave the test files as they are. There is no network.

- Read the structure of the repository and the code that the issue is about.
- Write a script that shows the problem, and run it.
- Make the smallest change that removes the cause.
- Run your script again, then the tests near your change.
- Think of inputs at the edges, and see that they work too.
- View a file in parts of some fifty lines, and look at a place again before you edit it twice.
- Remove your own scripts, then hand the work in."""

_TOOLS: Final = ("bash", "str_replace_editor", "submit")


@dataclass(frozen=True, slots=True)
class AgentPreset:
    """The defaults of an agent's fields; the job's own settings take precedence."""

    system_prompt: str | None = None
    """None for the default system prompt."""
    instance_prompt: str | None = None
    tool_format: str = "auto"
    tools: tuple[str, ...] = _TOOLS


PRESETS: Final[Mapping[str, AgentPreset]] = {
    "loop": AgentPreset(),
    "react": AgentPreset(REACT_SYSTEM, tool_format=TextFormat.THOUGHT_ACTION.value),
    "tool": AgentPreset(TOOL_SYSTEM, tool_format=TextFormat.TOOL_CALL_LINE.value),
    "coding": AgentPreset(CODING_SYSTEM),
    "general": AgentPreset(GENERAL_SYSTEM),
    "swe": AgentPreset(SWE_SYSTEM, SWE_INSTANCE, tool_format=TextFormat.FUNCTION_XML.value),
}


def preset_of(use: object) -> AgentPreset:
    """Return the defaults of an agent, or those of `loop` if it is not built in."""
    return PRESETS.get(use, PRESETS["loop"]) if isinstance(use, str) else PRESETS["loop"]


class ToolUse(ShortUse):
    """A tool or toolset: its name, or `{use: module:attr, with: {…}}`, and how it is offered."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = unset()
    """The name that the policy sees; by default the tool's own. Not for a toolset."""
    description: Text | None = unset()
    """The description that the policy sees; by default the tool's own. Not for a toolset."""
    timeout_seconds: Seconds | None = unset()
    """Limit for one call; by default `limits.toolSeconds`."""
    output_bytes: Annotated[int, Field(ge=256, le=2**24)] | None = unset()
    """Limit for one result; by default `limits.toolOutputBytes`."""


ReadyHarness = Literal[
    "claude-code",
    "codex",
    "gemini-cli",
    "mini-swe-agent",
    "opencode",
    "openhands",
    "pi",
    "qwen-code",
]


class HarnessSpec(Short):
    """A program that is the agent: the name of a ready one, or `{command: …, env: {…}}`."""

    short_field = "name"

    name: ReadyHarness | None = unset()
    """A ready one, which `swe-rollout harness install` brings: docs/how-to/gateway.md."""
    command: Annotated[str, StringConstraints(min_length=1, max_length=65_536)] | None = unset()
    """A program, for the shell. `$TASK` is the task; `$OPENAI_BASE_URL`, `$ANTHROPIC_BASE_URL`
    and `$GOOGLE_GEMINI_BASE_URL` are the APIs' addresses, and `$OPENAI_API_KEY`,
    `$ANTHROPIC_API_KEY` and `$GEMINI_API_KEY` the key of the episode."""
    env: Annotated[dict[str, str], Field(max_length=64, exclude_if=lambda env: not env)] = Field(
        default_factory=dict
    )
    """Further variables."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.name is None) == (self.command is None):
            raise ValueError("set exactly one of name and command")
        return self


class AgentSpec(Model):
    """The agent: its program, tools and prompts."""

    harness: HarnessSpec | None = unset()
    """A program that runs in the sandbox as it is, in place of `use`, and speaks a chat API: the
    name of a ready one, such as `codex`, or `{command: …, env: {…}}`. It brings its own tools and
    system prompt. docs/how-to/gateway.md"""

    use: Annotated[Reference, Field(exclude_if=lambda use: use == "loop")] = "loop"
    """The agent program: `loop` takes turns until the policy submits or a limit is reached;
    `react`, `tool`, `coding`, `general` and `swe` are presets (docs/reference/agents.md) that bring
    defaults for the fields below."""
    with_: Annotated[
        Parameters, Field(alias="with", exclude_if=lambda parameters: not parameters)
    ] = Field(default_factory=dict)
    """Its parameters."""
    tool_format: Reference = Field(
        default_factory=lambda fields: preset_of(fields.get("use")).tool_format
    )
    """The format of tool calls: a name from docs/reference/parsers.md or `module:attr`; auto takes
    the one that the chat template shows. Presets may have another default."""
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
    """Additional `{name}` placeholders in both prompts, and their values."""
    prompts_file: LocalPath | None = unset()
    """A prompts file beside the job file: YAML with `systemPrompt` and `instancePrompt`, or plain
    text, the system prompt. It is read with the job file, whose own prompts take precedence."""

    def __str__(self) -> str:
        return self.use if self.harness is None else self.harness.name or "harness"

    @model_validator(mode="after")
    def _has_one_program(self) -> Self:
        if self.use == "harness":
            raise ValueError("name the program in `harness`, not in `use`")
        default = preset_of(self.use)
        own = {
            "use": self.use != "loop",
            "with": bool(self.with_),
            "tools": tuple(tool.use for tool in self.tools) != default.tools,
            "systemPrompt": self.system_prompt != default.system_prompt,
        }
        names = ", ".join(name for name, is_set in own.items() if is_set)
        if self.harness is not None and names:
            raise ValueError(f"{names} can't be set beside `harness`, which brings its own")
        return self

    @field_validator("prompt_variables")
    @classmethod
    def _has_names(cls, value: dict[str, str]) -> dict[str, str]:
        if any(not name.isidentifier() or not name.isascii() for name in value):
            raise ValueError("names of letters, digits and `_`, and a text for each")
        return value
