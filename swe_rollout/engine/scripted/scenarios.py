"""The text of scripted policies: named scenarios, turn by turn, with their expected outcome.

This is text only; `scripted.engine` turns it into tokens. A scenario never looks at tool results: a
turn depends only on its number, so a stateless server can play it.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from swe_rollout.errors import PrerequisiteError, TaskError, UsageError
from swe_rollout.spec.policy import ScriptedTurn
from swe_rollout.spec.tool_format import TextFormat, ToolFormat
from swe_rollout.types.episode import StopReason
from swe_rollout.types.instance import FolderTask, Instance

CHUNK_BYTES = 3000
"""The part of a patch that one call writes. A token has at least one byte, so a call fits the
default maxNewTokens."""
# In the sandbox's own repository: a sandbox without namespaces shares /tmp with others.
_PATCH_FILE = ".git/fix.patch"
_MARKER = "END_OF_PATCH"
_CACHED = 64
"""The number of tasks whose turns are cached: an episode asks for one after another."""
# Text that is special to a chat template or a tool-call format.
_CONTROL = re.compile(r"<\||</?(?:tool_|think|function|parameter)|" + _MARKER)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scripted episode and its expected outcome."""

    name: str
    resolved: bool
    """Whether the tests must pass at the end."""
    stop_reason: StopReason
    """How the episode must end."""
    turn: Callable[[int, Instance, str], str]
    """Return the policy's text of turn `index` (from 0) of an episode of `instance`."""


def scenario(name: str) -> Scenario:
    """Find the scenario of that name; raises UsageError that lists the known ones."""
    try:
        return SCENARIOS[name]
    except KeyError as error:
        known = ", ".join(SCENARIOS)
        raise UsageError(f"there is no scenario {name!r}", fix=f"use one of: {known}") from error


def own_scenario(script: Sequence[ScriptedTurn]) -> Scenario:
    """Return a scenario of turns of the user's own; whether they solve a task is not known."""

    def turn(index: int, _instance: Instance, form: str) -> str:
        if index >= len(script):
            return ""
        turn = script[index]
        for tool, arguments in turn.call.items():
            return _ScriptedTurn(turn.say, tool, arguments).text(form)
        return turn.say

    return Scenario("turns", resolved=False, stop_reason=StopReason.FINISHED, turn=turn)


@dataclass(frozen=True, slots=True)
class _ScriptedTurn:
    """A sentence of reasoning, then one call."""

    reason: str
    tool: str
    arguments: Mapping[str, object]

    def text(self, form: str) -> str:
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


def _bash(reason: str, command: str) -> _ScriptedTurn:
    return _ScriptedTurn(reason, "bash", {"command": command})


_LOOK = _bash("I look around first.", "git log --oneline | head -3; ls")
_SUBMIT = _ScriptedTurn("I am done with this task.", "submit", {})


def _turn_at(turns: Sequence[_ScriptedTurn], index: int, form: str) -> str:
    """Return the text of turn `index`; past the end, repeat the last one."""
    return turns[min(index, len(turns) - 1)].text(form)


def _gold(index: int, instance: Instance, form: str) -> str:
    if instance.folder is not None and instance.folder.solve:
        return _turn_at(_solution(instance.folder), index, form)
    return _turn_at(_fix(_gold_patch(instance)), index, form)


@lru_cache(maxsize=_CACHED)
def _fix(patch: bytes) -> Sequence[_ScriptedTurn]:
    """Look, write the patch in pieces, apply it, submit. Built once for all turns of a task."""
    turns = [_LOOK]
    if (path := _existing_file(patch)) is not None:
        view = {"command": "view", "path": path, "view_range": (1, 20)}
        turns.append(
            _ScriptedTurn("This file is where the fix belongs.", "str_replace_editor", view)
        )
    pieces = list(_chunks(patch))
    for number, piece in enumerate(pieces, 1):
        reason = f"I write down the fix, part {number} of {len(pieces)}."
        turns.append(_bash(reason, _write_command(piece, ">" if number == 1 else ">>")))
    apply = f"git apply --whitespace=nowarn {_PATCH_FILE} && rm {_PATCH_FILE} && git diff --stat"
    return (*turns, _bash("Now I apply it and look at what changed.", apply), _SUBMIT)


@lru_cache(maxsize=_CACHED)
def _solution(task: FolderTask) -> Sequence[_ScriptedTurn]:
    """Carry out a folder task's own solution."""
    turns = [_LOOK]
    for file in task.solution:
        pieces = list(_chunks(base64.b64decode(file.content)))
        for number, piece in enumerate(pieces):
            write = _write_command(piece, ">>" if number else ">", file.path)
            reason = f"I write {file.path}, part {number + 1} of {len(pieces)}."
            turns.append(
                _bash(reason, f"mkdir -p {shlex.quote(posixpath.dirname(file.path))} && {write}")
            )
    programs = " ".join(shlex.quote(file.path) for file in task.solution if file.executable)
    clean = "rm -rf /solution"
    turns.append(_bash("Now I run it.", f"chmod +x {programs}; ({task.solve}); {clean}"))
    return (*turns, _SUBMIT)


def _wrong(index: int, instance: Instance, form: str) -> str:
    path = _existing_file(instance.gold_patch)
    if path is None:
        edit = _bash("A note should be enough.", "printf '# reviewed\\n' >> REVIEWED.txt")
    else:
        insert: dict[str, object] = {
            "command": "insert",
            "path": path,
            "insert_line": 0,
            "new_str": "# Reviewed: nothing to change here.",
        }
        edit = _ScriptedTurn("A note in this file should be enough.", "str_replace_editor", insert)
    return _turn_at([_LOOK, edit, _SUBMIT], index, form)


def _empty(index: int, _instance: Instance, form: str) -> str:
    return _turn_at([_LOOK, _SUBMIT], index, form)


def _malformed(index: int, instance: Instance, form: str) -> str:
    return _broken(index, form) if index == 0 else _gold(index - 1, instance, form)


def _garbage(index: int, _instance: Instance, form: str) -> str:
    return _broken(index, form)


def _loop(_index: int, _instance: Instance, form: str) -> str:
    return _bash("I look at the status once more.", "git status --short | head -5").text(form)


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


def _gold_patch(instance: Instance) -> bytes:
    if not instance.gold_patch.strip():
        raise TaskError(
            f"{instance.instance_id} has no gold patch to play",
            fix="leave the instance out, or play scenarios without a fix: wrong, empty, loop",
            retryable=False,
        )
    return instance.gold_patch.removesuffix("\n").encode() + b"\n"


def _existing_file(patch: str | bytes) -> str | None:
    """Find a file that the patch changes but does not create, preferably Python."""
    text = patch if isinstance(patch, str) else patch.decode()
    paths = re.findall(r"^--- a/(\S+)$", text, flags=re.MULTILINE)
    sources = [path for path in paths if path.endswith(".py")]
    return next(iter(sources or paths), None)


def _chunks(patch: bytes) -> Iterator[bytes]:
    """Split the patch into chunks of whole lines; a line longer than a chunk is split."""
    chunk = b""
    for line in patch.splitlines(keepends=True):
        for start in range(0, len(line), CHUNK_BYTES):
            piece = line[start : start + CHUNK_BYTES]
            if chunk and len(chunk) + len(piece) > CHUNK_BYTES:
                yield chunk
                chunk = b""
            chunk += piece
    if chunk:
        yield chunk


def _write_command(chunk: bytes, redirect: str, path: str = _PATCH_FILE) -> str:
    """Write the chunk by here-document, or as base64 if the text would not arrive unchanged."""
    text = chunk.decode(errors="replace")
    plain = (
        text.encode() == chunk
        and text.endswith("\n")
        and not _CONTROL.search(text)
        and unicodedata.is_normalized("NFC", text)
        and all(c in "\t\n" or c.isprintable() for c in text)
    )
    if plain:
        return f"cat {redirect} {shlex.quote(path)} <<'{_MARKER}'\n{text}{_MARKER}"
    encoded = base64.encodebytes(chunk).decode()
    return f"base64 -d {redirect} {shlex.quote(path)} <<'{_MARKER}'\n{encoded}{_MARKER}"


SCENARIOS: Mapping[str, Scenario] = {
    scripted.name: scripted
    for scripted in (
        Scenario("gold", resolved=True, stop_reason=StopReason.SUBMITTED, turn=_gold),
        Scenario("wrong", resolved=False, stop_reason=StopReason.SUBMITTED, turn=_wrong),
        Scenario("empty", resolved=False, stop_reason=StopReason.SUBMITTED, turn=_empty),
        Scenario("malformed", resolved=True, stop_reason=StopReason.SUBMITTED, turn=_malformed),
        Scenario("garbage", resolved=False, stop_reason=StopReason.FORMAT_ERRORS, turn=_garbage),
        Scenario("loop", resolved=False, stop_reason=StopReason.TURN_LIMIT, turn=_loop),
    )
}
"""All scenarios, by name."""
