"""Grammars that write calls as Python: `[NAME(KEY=VALUE, …), …]`, with literals as values.

LFM2 puts the list between two tokens, Llama 4 ends the turn with it, OLMo 3 writes one call per
line. Only calls of plain names with keyword arguments count, and only values that JSON can express.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from unicodedata import is_normalized

from swe_rollout.agent.parsers.base import (
    Delimiters,
    Found,
    MalformedError,
    Mark,
    Reasoning,
    Refusal,
    SampledText,
    ToolCallParser,
    attempts,
    checked,
    refused,
    text_start,
)
from swe_rollout.agent.parsers.exact_calls import calls_between
from swe_rollout.agent.parsers.strict_json import read_json
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_MAX_CHARACTERS = 200_000
_MAX_DEPTH = 50
_CONSTANTS = {"true": True, "false": False, "null": None}
STRING = re.compile(
    r"'''(?:[^\\]|\\.)*?(?:'''|\\?\Z)|\"\"\"(?:[^\\]|\\.)*?(?:\"\"\"|\\?\Z)"
    r"|'(?:[^'\\\n]|\\.)*+'?|\"(?:[^\"\\\n]|\\.)*+\"?",
    re.DOTALL,
)
"""A string, or the rest of an unclosed one."""
_QUOTE = re.compile(r"['\"]")
_ODD = re.compile(r"[#;\\]|''\s*''|\w''|(?<!\w)\(|\s\.|\.\s")
"""Python that is not part of a call: comments, statements, parentheses, string prefixes."""
_RUN = re.compile(r"[-+~]{9}|(?:\bnot\s+){9}|[({\[]{50}")
"""Runs of operators or brackets that would only nest Python's parser deeply."""


@dataclass(frozen=True, slots=True)
class PythonGrammar(ToolCallParser):
    """Reads the calls of one family."""

    call: Delimiters | None
    """The delimiters of the list; None if it ends the turn, with only text before it."""
    is_lines: bool = False
    """Whether each line has one call, without a list."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        call = self.call
        if call is None:
            return self._whole(sampled, tools, reasoning)
        return calls_between(
            sampled,
            call,
            partial(self._between, _Closers(sampled, call.closer), tools),
            reasoning=reasoning,
            quotes="\"'",
        )

    def _between(self, closers: _Closers, tools: Sequence[ToolSpec], opener: Mark) -> Found:
        start, sampled, closer = opener.end, closers.sampled, closers.closer
        end = closers.behind(start)
        if end is None:
            refusal = Refusal(CallStatus.UNCLOSED, f"it is not closed by {closer}")
            return refused(sampled, start, Delimiters(opener.token, closer), refusal)
        raw = sampled.text[start:end]
        behind = end + len(closer)
        return Found(python_calls(raw, tools, is_lines=self.is_lines), behind)

    def _whole(
        self, sampled: SampledText, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        text = sampled.text
        start = text_start(sampled, reasoning)
        # A sub-agent may have no tools, and no name is not an empty one.
        known = "|".join(re.escape(tool.name) for tool in tools) or r"(?!)"
        begun = re.compile(rf"^\[[A-Za-z_][\w.]*\(|\[(?:{known})\(", re.MULTILINE)

        def begins(at: int) -> Mark | None:
            found = begun.search(text, max(at, start))
            return Mark(found.start(), "") if found else None

        def read(opener: Mark) -> Found:
            return Found(python_calls(text[opener.start :], tools, is_lines=False), len(text))

        return attempts(sampled, begins, read, reasoning=reasoning)


@dataclass(slots=True)
class _Closers:
    """Finds the closers of one turn that are outside of strings, in time linear in its length."""

    sampled: SampledText
    closer: str
    _behind: dict[int, int | None] = field(default_factory=dict)
    """The closer behind each quote that has begun a string. Openers inside of strings start over
    at quotes that were seen before, thousands of times in a degenerate turn."""

    def behind(self, start: int) -> int | None:
        """Return the offset of the next closer; one inside a string is text."""
        text, at, passed = self.sampled.text, start, list[int]()
        found = self.sampled.find(self.closer, at)
        while found is not None and (quote := _QUOTE.search(text, at, found)):
            begun = quote.start()
            if begun in self._behind:
                found = self._behind[begun]
                break
            passed.append(begun)
            string = STRING.match(text, begun)
            at = string.end() if string else quote.end()
            found = self.sampled.find(self.closer, at)
        self._behind |= dict.fromkeys(passed, found)
        return found


def python_calls(raw: str, tools: Sequence[ToolSpec], *, is_lines: bool) -> tuple[ToolCall, ...]:
    """Read a text that is one list of calls or, with `is_lines`, a sequence of calls."""
    text = raw.strip()
    try:
        return tuple(_call(node, text, tools) for node in _nodes(text, is_lines=is_lines))
    except MalformedError as error:
        return (Refusal(error.status, str(error)).call(raw),)


def _nodes(text: str, *, is_lines: bool) -> Sequence[ast.expr]:
    bare = STRING.sub("''", text)
    if len(text) > _MAX_CHARACTERS or _RUN.search(bare):
        raise MalformedError("it is too long or nested too deeply")
    if _ODD.search(bare) or not is_normalized("NFKC", bare):
        raise MalformedError("there may be nothing but calls with literals")
    try:
        with warnings.catch_warnings():
            # Python warns about a backslash that escapes nothing, but such a string is fine here.
            warnings.simplefilter("ignore")
            body = ast.parse(text, mode="exec").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise MalformedError(f"it is no Python: {str(error)[:120]}") from error
    found = [node.value for node in body if isinstance(node, ast.Expr)]
    if len(found) != len(body):
        raise MalformedError("there may be nothing but calls")
    match found:
        case [_, *_] if is_lines:
            return found
        case [ast.List(elts=[_, *_] as calls)]:
            return calls
        case _:
            raise MalformedError("it must be calls" if is_lines else "it must be one list of calls")


def _call(node: ast.expr, text: str, tools: Sequence[ToolSpec]) -> ToolCall:
    match node:
        case ast.Call(func=func, args=[], keywords=keywords) if name := _name(func):
            arguments: dict[str, object] = {}
            for keyword in keywords:
                if keyword.arg is None or keyword.arg in arguments:
                    raise MalformedError(
                        f"an argument of {name[:80]} has no name, or appears twice"
                    )
                arguments[keyword.arg] = _value(keyword.value, 0)
            _check_json(arguments)
            return checked(name, arguments, tools=tools, raw=text)
        case _:
            raise MalformedError("each call must be NAME(KEY=VALUE, …)")


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=first), attr=last):
            return f"{first}.{last}"
        case _:
            return ""


def _value(node: ast.expr, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise MalformedError("a value is nested too deeply")
    match node:
        case ast.Constant(value=str() | bool() | int() | float() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if (
            not isinstance(value, bool)
        ):
            return -value
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.List(elts=items):
            return [_value(item, depth + 1) for item in items]
        case ast.Dict(keys=keys, values=values):
            pairs = [
                (_key(key), _value(value, depth + 1))
                for key, value in zip(keys, values, strict=True)
            ]
            if len(dict(pairs)) != len(pairs):
                raise MalformedError("a key appears twice")
            return dict(pairs)
        case _:
            raise MalformedError("values must be literals that JSON could hold")


def _check_json(arguments: dict[str, object]) -> None:
    try:
        read_json(json.dumps(arguments, allow_nan=False))
    except ValueError as error:
        raise MalformedError("values must be literals that JSON could hold") from error


def _key(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str() as key):
            return key
        case _:
            raise MalformedError("keys must be strings")


LFM2 = PythonGrammar(Delimiters("<|tool_call_start|>", "<|tool_call_end|>"))
PYTHONIC = PythonGrammar(None)
OLMO3 = PythonGrammar(Delimiters("<function_calls>", "</function_calls>"), is_lines=True)
