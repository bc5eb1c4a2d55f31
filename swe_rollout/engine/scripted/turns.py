"""Turns of a scripted policy, before they are written in a format of calls."""

from __future__ import annotations

import json
import shlex
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from swe_rollout.errors import PrerequisiteError
from swe_rollout.spec.tool_format import TextFormat, ToolFormat


@dataclass(frozen=True, slots=True)
class Shell:
    """The tool that runs commands, of an agent that has tools of its own."""

    tool: str
    argument: str
    ends: str = ""
    """The command that ends the work; empty if a turn without a call does."""


class Said(Protocol):
    """What a turn says, before it is written in a format of calls."""

    def text(self, form: str) -> str: ...

    def through(self, shell: Shell) -> Said: ...


@dataclass(frozen=True, slots=True)
class CallTurn:
    """A sentence of reasoning, then one call."""

    reason: str
    tool: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)

    def through(self, shell: Shell) -> CallTurn:
        """Return the turn with a command that does the same."""
        match self.tool, self.arguments:
            case "bash", {"command": str() as command}:
                pass
            case "str_replace_editor", {"command": "insert", "path": str() as path, "new_str": new}:
                command = f"sed -i {shlex.quote(f'1i {new}')} {shlex.quote(path)}"
            case "str_replace_editor", {"path": str() as path}:
                command = f"head -n 20 {shlex.quote(path)}"
            case _:
                command = shell.ends
        if not command:
            return CallTurn(self.reason)
        if "\n" in command:
            # Some agents refuse here-documents and what looks like a substitution.
            command = f"echo {b64encode(command.encode()).decode()} | base64 -d | sh"
        return CallTurn(self.reason, shell.tool, {shell.argument: command})

    def text(self, form: str) -> str:
        if not self.tool:
            return self.reason
        match form:
            case ToolFormat.HERMES:
                body = json.dumps(
                    {"name": self.tool, "arguments": dict(self.arguments)}, ensure_ascii=False
                )
            case ToolFormat.QWEN_XML:
                values = "".join(
                    f"<parameter={name}>\n{_xml_value(value)}\n</parameter>\n"
                    for name, value in self.arguments.items()
                )
                body = f"<function={self.tool}>\n{values}</function>"
            case _:
                return self._in_words(form)
        return f"{self.reason}\n<tool_call>\n{body}\n</tool_call>"

    def _in_words(self, form: str) -> str:
        match form:
            case TextFormat.THOUGHT_ACTION:
                written = json.dumps(dict(self.arguments), ensure_ascii=False)
                return f"Thought: {self.reason}\nAction: {self.tool}\nAction Input: {written}"
            case TextFormat.TOOL_CALL_LINE:
                plain = {name: _list(value) for name, value in self.arguments.items()}
                values = ", ".join(f"{name}={value!r}" for name, value in plain.items())
                return f"{self.reason}\nTOOL_CALL: {self.tool}({values})"
            case TextFormat.ACTION_JSON:
                call = {"name": self.tool, "parameters": dict(self.arguments)}
                return f"{self.reason}\nAction: {json.dumps(call, ensure_ascii=False)}"
            case TextFormat.FUNCTION_XML:
                values = "".join(map(_xml_parameter, self.arguments.items()))
                return f"{self.reason}\n<function={self.tool}>\n{values}</function>"
            case _:
                raise _unsupported(form)


class OwnTurn(CallTurn):
    """A turn of the user's own, which names the tools that its agent has."""

    def through(self, shell: Shell) -> CallTurn:
        del shell
        return self


@dataclass(frozen=True, slots=True)
class BrokenTurn:
    """A call that breaks off."""

    number: int

    def through(self, shell: Shell) -> BrokenTurn:
        del shell
        return self

    def text(self, form: str) -> str:
        return _broken(self.number, form)


def _unsupported(form: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"scripted policies don't write calls in the format {form}",
        fix="set spec.agent.toolFormat to hermes or qwen_xml, or to a format that stands in the "
        "words, or remove spec.policy.tokenizer",
    )


def _list(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _xml_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _xml_parameter(parameter: tuple[str, object]) -> str:
    return f"<parameter={parameter[0]}>{_xml_value(parameter[1])}</parameter>\n"


def _broken(index: int, form: str) -> str:
    match form:
        case ToolFormat.HERMES:
            body = '{"name": "bash", "arguments": {"command": "ls"'
        case ToolFormat.QWEN_XML:
            body = "<function=bash>\n<parameter=command>\nls\n</function>"
        case TextFormat.FUNCTION_XML:
            return f"Call number {index + 1}, in a hurry.\n<function=bash>\n<parameter=command>ls"
        case TextFormat.TOOL_CALL_LINE:
            return f"Call number {index + 1}, in a hurry.\nTOOL_CALL: bash(command='ls'"
        case TextFormat.THOUGHT_ACTION | TextFormat.ACTION_JSON:
            return f'Thought: call number {index + 1}, in a hurry.\nAction: {{"name": "bash"'
        case _:
            raise _unsupported(form)
    return f"Call number {index + 1}, in a hurry.\n<tool_call>\n{body}\n</tool_call>"
