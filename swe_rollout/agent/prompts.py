"""The prompts before the first turn, which `agent.renderer` renders once.

Templates are filled in a single pass: braces in an issue or a value are never taken for names, and
unknown names stay unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.errors import UsageError

SYSTEM = """\
You are a software engineer who works alone in a sandbox that holds a copy of a repository. \
You act only through the tools: run commands, read the code, change it. Nobody answers questions; \
if something is unclear, decide from the code and go on."""

INSTANCE = """\
The repository is in {workdir}. Solve this issue in it:

<issue>
{problem_statement}
</issue>

Change the source code so that the issue is resolved; hidden tests decide. There is no need to \
change existing tests, and no network.

A good way to work:
1. Find and read the code the issue is about.
2. Reproduce the problem with a small script.
3. Fix the cause with as small a change as does it.
4. Run the script and the tests near your change again, and mind the edge cases.
5. Remove files you made only for trying out, then call `submit`."""

_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class MessageRole(StrEnum):
    """The role of a message, as chat templates name it."""

    SYSTEM = "system"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the first rendering."""

    role: MessageRole
    content: str
    """A system message is the job's own, trusted text. A user message contains text of a dataset
    row, in which nothing can become a control token."""


def with_system(first: Sequence[Message], text: str) -> tuple[Message, ...]:
    """Return the messages with a text added to the system message, which it may have to begin."""
    system = "".join(message.content for message in first if message.role is MessageRole.SYSTEM)
    others = (message for message in first if message.role is not MessageRole.SYSTEM)
    return (Message(MessageRole.SYSTEM, (system + text).lstrip("\n")), *others)


@dataclass(frozen=True, slots=True)
class Prompts:
    """The two texts with which every episode of a job starts."""

    system: str = SYSTEM
    """The system message; if empty, there is none."""
    instance: str = INSTANCE
    """The user message, in which `{problem_statement}`, `{workdir}` and `values` are filled in."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Values of further names in the instance prompt."""

    def messages(self, problem_statement: str, workdir: str) -> tuple[Message, ...]:
        """Return the messages that present a task to be solved in the folder `workdir`."""
        task = {**self.values, "problem_statement": problem_statement, "workdir": workdir}
        return self.first(fill(self.instance, task))

    def first(self, given: str | Sequence[Message]) -> tuple[Message, ...]:
        """Return messages unchanged, and a string as a user message after the system message."""
        if not isinstance(given, str):
            return tuple(given)
        user = Message(MessageRole.USER, given)
        return (Message(MessageRole.SYSTEM, self.system), user) if self.system else (user,)


def fill(template: str, values: Mapping[str, str]) -> str:
    """Fill in the `{name}`s of a template in one pass; names without a value are kept."""
    return _NAME.sub(lambda found: values.get(found[1], found[0]), template)


def described(tools: Iterable[ToolSpec]) -> str:
    """Describe tools for people and models: one line per tool and one per argument."""
    return "\n".join(line for tool in tools for line in _lines(tool))


def _lines(tool: ToolSpec) -> Iterable[str]:
    yield f"- {tool.name}: {tool.description}"
    for each in tool.parameters:
        needed = "" if each.required else ", optional"
        choices = f"; one of {', '.join(map(str, each.choices))}" if each.choices else ""
        yield f"  - {each.name} ({each.type.value}{needed}): {each.description}{choices}"


@dataclass(frozen=True, slots=True)
class PromptBuilder:
    """Builds a prompt from a template and sections. Each step returns a new builder.

    PromptBuilder("You fix {language} code.", {"language": "Rust"}).section("Rules", RULES).build()
    """

    template: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Values to fill into the template and the contents of sections."""
    sections: tuple[str, ...] = ()

    def section(self, title: str, content: str, *, when: bool = True) -> PromptBuilder:
        """Add a section unless `when` is false or the content is empty."""
        if not when or not content.strip():
            return self
        return self._with(f"# {title}\n\n{fill(content, self.variables)}")

    def tools(self, specs: Iterable[ToolSpec]) -> PromptBuilder:
        """Add a section that describes tools."""
        text = described(specs)
        return self._with(f"# Tools\n\n{text}") if text else self

    def examples(self, pairs: Sequence[tuple[str, str]]) -> PromptBuilder:
        """Add a section of example inputs with their expected outputs."""
        written = (f"Input:\n{given}\n\nOutput:\n{wanted}" for given, wanted in pairs)
        return self._with("# Examples\n\n" + "\n\n".join(written)) if pairs else self

    def context(self, facts: Mapping[str, object]) -> PromptBuilder:
        """Add a section of named facts."""
        lines = (f"- {name}: {_plain(value)}" for name, value in facts.items())
        return self._with("# Context\n\n" + "\n".join(lines)) if facts else self

    def build(self) -> str:
        """Return the prompt."""
        return "\n\n".join(filter(None, [fill(self.template, self.variables), *self.sections]))

    def _with(self, section: str) -> PromptBuilder:
        return replace(self, sections=(*self.sections, section))


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def messages_of(prompt: object, *, system: str = "") -> tuple[Message, ...]:
    """Return the first messages of a prompt in one of the forms that datasets use.

    The prompt is a string, a list of messages `{"role", "content"}`, or an object whose `content`,
    `prompt` or `messages` is one of these. A leading system message replaces `system`, and is as
    trusted as the job's own. Raises UsageError for anything else, including an assistant message:
    nothing is written for the policy.
    """
    match prompt:
        case str() if prompt.strip():
            found = [Message(MessageRole.USER, prompt)]
        case {"messages": list() as inner} | {"prompt": list() as inner}:
            return messages_of(inner, system=system)
        case {"messages": _, **others} if not others:
            raise _no_prompt("`messages` must be a list")
        case {"role": _}:
            found = [_message(prompt)]
        case {"content": str() as text} | {"prompt": str() as text}:
            return messages_of(text, system=system)
        case [_, *_]:
            found = [_message(each) for each in prompt]
        case _:
            raise _no_prompt("it is empty, or none of the forms")
    if any(message.role is MessageRole.SYSTEM for message in found[1:]):
        raise _no_prompt("only the first message may be of the system")
    if found[-1].role is not MessageRole.USER:
        raise _no_prompt("it must end in a message of the user")
    if found[0].role is MessageRole.SYSTEM or not system:
        return tuple(found)
    return (Message(MessageRole.SYSTEM, system), *found)


def _message(value: object) -> Message:
    match value:
        case {"role": "system" | "user" as role, "content": str() as content}:
            return Message(MessageRole(role), content)
        case {"role": "assistant" | "tool"}:
            raise _no_prompt("nothing is written for the policy, nor results of calls")
        case _:
            raise _no_prompt("a message is {role: system or user, content: text}")


def _no_prompt(why: str) -> UsageError:
    return UsageError(
        "the value is no prompt",
        why=why,
        fix="give a text, a list of messages, or an object with content, prompt or messages",
    )
