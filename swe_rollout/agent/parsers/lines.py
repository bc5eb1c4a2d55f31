"""Grammars whose calls start with a mark at the start of a line, for engines that return only text.

    Thought: …
    Action: NAME
    Action Input: {…}

    TOOL_CALL: NAME(KEY=VALUE, …)

    NAME
    {…}

A turn without a mark has no call. A value may contain anything, even lines that look like calls. So
text after a broken or unclosed attempt is not parsed: it may be the rest of that attempt's value.
Each format is a row at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swe_rollout.agent.parsers.base import (
    Found,
    Mark,
    Reasoning,
    Refusal,
    SampledText,
    ToolCallParser,
    attempts,
    pieces,
    text_start,
)
from swe_rollout.agent.parsers.exact_calls import WELL_FORMED
from swe_rollout.agent.parsers.json_call import call_of_arguments, call_of_object, status_of
from swe_rollout.agent.parsers.made_up import line_marks, refuse_made_up
from swe_rollout.agent.parsers.pythonic import STRING, python_calls
from swe_rollout.agent.parsers.strict_json import read_json, skip_space
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_ACTION = re.compile(r"^Action:", re.MULTILINE)
_ACTION_NAME = re.compile(r"[ \t]*+([^\n]*+)(?:\n|\Z)")
_ACTION_INPUT = re.compile(r"\s*+Action Input:[ \t]*+")
_NEXT = re.compile(r"(?<=\n)(?:Thought|Action|Observation|Final Answer):")
_ANSWER = re.compile(r"[ \t]*+Final Answer:")
_PYTHON_NAME = re.compile(r"[ \t]*+([A-Za-z_][\w.]*)\(")
_PYTHON = re.compile(
    rf"(?P<string>{STRING.pattern})|(?P<open>[(\[{{])|(?P<close>[)\]}}])", re.DOTALL
)
_REST_OF_LINE = re.compile(r"[ \t]*+(?P<more>[^\n]*+)")
_JSON_PIECE = re.compile(
    r"(?P<string>\"(?:[^\"\\]|\\.)*+\"?)|(?P<comment>//[^\n]*+|/\*.*?(?:\*/|\Z))"
    r"|(?P<open>[{\[])|(?P<close>[}\]])|(?P<comma>,)",
    re.DOTALL,
)
_BEFORE_JSON = re.compile(r"\s*+(?:```(?:json)?\s*+)?(?=\{)")
_BEHIND_JSON = re.compile(r"[ \t]*+(?:\n\s*+```|```)?[ \t]*+(?:\n|\Z)")
_HEADER = re.compile(r"([A-Za-z_][\w.-]{0,63})[ \t]*+\n[ \t\n]*+")


@dataclass(frozen=True, slots=True)
class _Line:
    """An attempt at a call, from its mark on."""

    text: str
    """The whole turn."""
    mark: Mark
    tools: Sequence[ToolSpec]

    def refused(self, status: CallStatus, problem: str, name: str = "") -> Found:
        """Return an attempt that can't run, up to the end of the turn, with the reason why."""
        raw = self.text[self.mark.start :].strip()
        return Refusal(status, problem, name).found(raw, len(self.text))


@dataclass(frozen=True, slots=True)
class LineParser(ToolCallParser):
    """Reads the calls that begin with a mark."""

    mark: str
    read: Callable[[_Line], Found]
    reads_on: bool = False
    """Whether attempts after a broken one are read, because the end of its input is known."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        text = sampled.text

        def read(mark: Mark) -> Found:
            found = self.read(_Line(text, mark, tools))
            is_whole = self.reads_on or all(call.status in WELL_FORMED for call in found.calls)
            return found if is_whole else Found(found.calls, len(text))

        begins = line_marks(sampled, self.mark, reasoning)
        found = pieces(sampled, begins, read, reasoning=reasoning)
        return refuse_made_up(sampled, found, reasoning)


def _named_action(line: _Line) -> Found:
    """Read the name after `Action:`, and the JSON after `Action Input:` on the next line."""
    text, start = line.text, line.mark.end
    following = _ACTION.search(text, start)
    limit = following.start() if following else len(text)
    name_line = _ACTION_NAME.match(text, start, limit)
    name = name_line[1] if name_line else ""
    given = _ACTION_INPUT.match(text, name_line.end(), limit) if name_line else None

    def refused(status: CallStatus, problem: str) -> Found:
        return Refusal(status, problem, name).found(text[line.mark.start : limit].strip(), limit)

    if not name:
        problem = "`Action:` must be followed by the name of a tool"
        return refused(CallStatus.MISSING_NAME, problem)
    if given is None:
        problem = "`Action Input:` and a JSON object must follow on the next line"
        return refused(CallStatus.UNCLOSED, problem)
    try:
        found = read_json(text, given.end(), limit)
    except ValueError as error:
        return refused(status_of(error), str(error))
    if found.end < limit and not _NEXT.match(text, found.end):
        problem = "there is more text behind its JSON object"
        return refused(CallStatus.INVALID_JSON, problem)
    raw = text[line.mark.start : found.end].strip()
    call = call_of_arguments(name, found.value, key="Action Input", tools=line.tools, raw=raw)
    return Found((call,), found.end)


def _any_action(line: _Line) -> Found:
    """Read an action in either form; a final answer is none."""
    if _ANSWER.match(line.text, line.mark.end):
        return Found((), len(line.text))
    is_python = _PYTHON_NAME.match(line.text, line.mark.end)
    return _python_call(line) if is_python else _named_action(line)


def _python_call(line: _Line) -> Found:
    """Read `NAME(KEY=VALUE, …)`; values are Python literals.

    It must fill its line or lines: any text after it may be the rest of a broken value.
    """
    text, start = line.text, skip_space(line.text, line.mark.end)
    named = _PYTHON_NAME.match(text, line.mark.end)
    if named is None:
        problem = f"`{line.mark.token}` must be followed by NAME(KEY=VALUE, …)"
        return line.refused(CallStatus.MISSING_NAME, problem)
    end = _closing(text, start)
    if end is None:
        problem = "its parentheses or its quotes are not closed"
        return line.refused(CallStatus.UNCLOSED, problem, named[1])
    if (rest := _REST_OF_LINE.match(text, end)) and rest["more"].strip():
        problem = "nothing may follow it on its line; write line breaks in a value as \\n"
        return line.refused(CallStatus.MALFORMED, problem, named[1])
    return Found(python_calls(text[start:end], line.tools, is_lines=True), end)


def _closing(text: str, start: int) -> int | None:
    """Return the offset after the bracket that closes the first one."""
    depth = 0
    for found in _PYTHON.finditer(text, start):
        if found["open"]:
            depth += 1
        elif found["close"]:
            depth -= 1
            if depth <= 0:
                return found.end()
    return None


def _json_action(line: _Line) -> Found:
    """Read a JSON object with a name and parameters leniently.

    It may be in a code fence and span lines; comments and trailing commas are ignored, and
    `arguments` is read as `parameters`. All other formats are strict.
    """
    begun = _BEFORE_JSON.match(line.text, line.mark.end)
    if begun is None:
        problem = '`Action:` must be followed by {"name": …, "parameters": {…}}'
        return line.refused(CallStatus.MISSING_NAME, problem)
    plain, end = _plain(line.text, begun.end())
    if end is None:
        return line.refused(CallStatus.UNCLOSED, "its JSON object is not closed")
    if _BEHIND_JSON.match(line.text, end) is None:
        problem = "there is more text behind its JSON object"
        return line.refused(CallStatus.INVALID_JSON, problem)
    try:
        value = read_json(plain).whole
    except ValueError as error:
        return line.refused(CallStatus.INVALID_JSON, str(error))
    key = "arguments" if isinstance(value, dict) and "arguments" in value else "parameters"
    raw = line.text[line.mark.start : end]
    return Found((call_of_object(value, tools=line.tools, raw=raw, arguments_key=key),), end)


def _plain(text: str, start: int) -> tuple[str, int | None]:
    """Return the object at `start` as strict JSON, and the offset after it."""
    pieces, depth, at, comma = list[str](), 0, start, False
    for found in _JSON_PIECE.finditer(text, start):
        between = text[at : found.start()]
        if comma and (between.strip() or not (found["close"] or found["comment"])):
            pieces.append(",")
            comma = False
        pieces.append(between)
        at = found.end()
        if found["comment"]:
            continue
        if found["comma"]:
            comma = True
            continue
        pieces.append(found[0])
        if found["open"]:
            depth += 1
        elif found["close"]:
            comma = False
            depth -= 1
            if depth == 0:
                return "".join(pieces), found.end()
    return "", None


@dataclass(frozen=True, slots=True)
class HeaderParser(ToolCallParser):
    """Reads turns whose header names the tool; words begin on the line after an empty header.

    A turn may consist of several, each behind the token of the policy's role.
    """

    role: str

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        text, start = sampled.text, text_start(sampled, reasoning)
        start = skip_space(text, start) if start else 0
        known = {tool.name for tool in tools}

        def header(at: int) -> re.Match[str] | None:
            found = _HEADER.match(text, at)
            is_call = found is not None and (found[1] in known or text.startswith("{", found.end()))
            return found if is_call else None

        def begins(at: int) -> Mark | None:
            return (
                Mark(start, "") if at <= start and header(start) else sampled.first([self.role], at)
            )

        def read(mark: Mark) -> Found:
            named = header(mark.end)
            if named is None:
                return Found((), mark.end)
            behind = sampled.find(self.role, named.end())
            end = len(text) if behind is None else behind
            raw = text[named.start() : end].strip()
            try:
                value = read_json(text[named.end() : end]).whole
            except ValueError as error:
                return Refusal(status_of(error), str(error), named[1]).found(raw, end)
            key = "the JSON behind a name"
            return Found((call_of_arguments(named[1], value, key=key, tools=tools, raw=raw),), end)

        return attempts(sampled, begins, read, reasoning=reasoning)


GLM4 = HeaderParser("<|assistant|>")
REACT = LineParser("Action:", _named_action, reads_on=True)
THOUGHT_ACTION = LineParser("Action:", _any_action)
TOOL_CALL_LINE = LineParser("TOOL_CALL:", _python_call)
ACTION_JSON = LineParser("Action:", _json_action)
