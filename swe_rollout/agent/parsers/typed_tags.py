"""Grammars whose values state their types or are nested: Kimi K3, MiniMax M3 and Gemma's.

    <|open|>call tool="NAME" index="1"<|sep|><|open|>argument key="KEY" type="string"<|sep|>VALUE…
    ]<]minimax[>[<invoke name="NAME">]<]minimax[>[<KEY>VALUE]<]minimax[>[</KEY>…
    <|tool_call>call:NAME{KEY:<|"|>TEXT<|"|>,KEY:3}<tool_call|>
    <start_function_call>call:NAME{KEY:<escape>TEXT<escape>,KEY:3}<end_function_call>

Their delimiters are tokens of the vocabulary, so a value can't contain one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from swe_rollout.agent.parsers.base import (
    Delimiters,
    Found,
    MalformedError,
    Mark,
    Reasoning,
    Refusal,
    SampledText,
    ToolCallParser,
    checked,
    pieces,
    tool_named,
    typed_as,
)
from swe_rollout.agent.parsers.exact_calls import is_unclosed, refuse_beside_rest
from swe_rollout.agent.parsers.strict_json import read_json
from swe_rollout.agent.parsers.tags import WS, Offsets
from swe_rollout.agent.tools.arguments import json_types, types_in
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_MAX_DEPTH = 50


class _Cursor:
    """Reads one turn from left to right."""

    def __init__(self, text: str, tags: str, start: int, *, limit: int, quote: str = "") -> None:
        self.text = text
        self.tags = tags
        self.at = start
        self.limit = limit
        self.quote = quote

    def take(self, pattern: str) -> re.Match[str] | None:
        """Skip text that matches here; merely spelled delimiters do not match."""
        found = re.compile(pattern).match(self.tags, self.at, self.limit)
        if found:
            self.at = found.end()
        return found

    def expect(self, pattern: str, problem: str) -> re.Match[str]:
        """Skip text that must match here. Raises MalformedError if it does not."""
        if (found := self.take(pattern)) is None:
            raise MalformedError(problem)
        return found

    def up_to(self, delimiter: str, problem: str) -> str:
        """Skip the text before a delimiter and return it as sampled."""
        end = self.tags.find(delimiter, self.at, self.limit)
        if end < 0:
            raise MalformedError(problem)
        text, self.at = self.text[self.at : end], end
        return text


@dataclass(frozen=True, slots=True)
class TypedParser(ToolCallParser):
    """Reads each call with one function, which leaves the cursor after the call."""

    call: Delimiters
    tokens: tuple[str, ...]
    """The tokens of its delimiters."""
    read: Callable[[_Cursor, Sequence[ToolSpec]], tuple[str, dict[str, object]]]
    is_block: bool = False
    """Whether the delimiters may enclose several calls."""
    quote: str = ""
    """The token around a text, in Gemma's grammars."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        tags = sampled.without_spelled(*self.tokens).text
        openers = Offsets.of(re.escape(self.call.opener), tags)
        closers = Offsets.of(re.escape(self.call.closer), tags)

        def begins(at: int) -> Mark | None:
            start = openers.next(at)
            return None if start is None else Mark(start, self.call.opener)

        def read(opener: Mark) -> Found:
            end, following = closers.next(opener.end), openers.next(opener.end)
            limit = len(tags) if following is None else following
            if end is None or end > limit:
                # No value can contain these tokens, so this call is not closed.
                unclosed = Refusal(CallStatus.UNCLOSED, f"it is not closed by {self.call.closer}")
                return unclosed.found(sampled.text[opener.end : limit], limit)
            limit = end + len(self.call.closer)
            cursor = _Cursor(sampled.text, tags, opener.end, limit=limit, quote=self.quote)
            try:
                calls = tuple(self._calls(cursor, tools))
            except MalformedError as error:
                broken = Refusal(error.status, str(error))
                return broken.found(sampled.text[opener.end : end], limit)
            return Found(calls, limit)

        found = pieces(sampled, begins, read, reasoning=reasoning)
        return refuse_beside_rest(found, has_closer=closers.any, goes_on=is_unclosed)

    def _calls(self, cursor: _Cursor, tools: Sequence[ToolSpec]) -> Iterator[ToolCall]:
        closer = WS + re.escape(self.call.closer)
        while True:
            start = cursor.at
            name, arguments = self.read(cursor, tools)
            raw = cursor.text[start : cursor.at].strip()
            yield checked(name, arguments, tools=tools, raw=raw)
            if cursor.take(closer):
                return
            if not self.is_block:
                raise MalformedError(f"{self.call.closer} must end it")
            cursor.take(WS)


def _kimi(cursor: _Cursor, tools: Sequence[ToolSpec]) -> tuple[str, dict[str, object]]:
    del tools
    head = cursor.expect(
        r'<\|open\|>call tool="([^"<>\n]+)"(?: index="\d+")?<\|sep\|>',
        'it must begin with call tool="NAME"',
    )
    arguments: dict[str, object] = {}
    while found := cursor.take(r'<\|open\|>argument key="([^"\n]+)" type="([a-z]+)"<\|sep\|>'):
        key = found[1].replace("&quot;", '"').replace("&amp;", "&")
        if key in arguments:
            raise MalformedError(f"the argument {key[:80]} appears twice")
        text = cursor.up_to("<|close|>", f"the argument {key[:80]} is not closed")
        cursor.expect(r"<\|close\|>argument<\|sep\|>", f"the argument {key[:80]} is not closed")
        arguments[key] = text if found[2] == "string" else _json(text, key)
        if found[2] not in json_types(arguments[key]):
            raise MalformedError(f"the argument {key[:80]} is no {found[2][:80]}")
    cursor.expect(r"<\|close\|>call<\|sep\|>", "only arguments may come before the end of a call")
    return head[1], arguments


def _json(text: str, key: str) -> object:
    try:
        return read_json(text).whole
    except ValueError as error:
        raise MalformedError(f"of the argument {key[:80]}, {error}") from error


_NS = "]<]minimax[>["
_NS_PATTERN = re.escape(_NS)


def _minimax(cursor: _Cursor, tools: Sequence[ToolSpec]) -> tuple[str, dict[str, object]]:
    head = cursor.expect(
        rf'{WS}{_NS_PATTERN}<invoke name="([^"<>\n]+)">', "it must begin with invoke and a name"
    )
    tool = tool_named(head[1], tools)
    schemas = tool.arguments.properties if tool is not None else {}
    arguments: dict[str, object] = {}
    while found := cursor.take(rf"{_NS_PATTERN}<([^/<>\n][^<>\n]*)>"):
        key = found[1]
        if key in arguments:
            raise MalformedError(f"the argument {key[:80]} appears twice")
        arguments[key] = _element(cursor, key, schemas.get(key, {}), 0)
    cursor.expect(rf"{_NS_PATTERN}</invoke>", "only arguments may come before the end of a call")
    return head[1], arguments


def _element(cursor: _Cursor, key: str, schema: Mapping[str, object], depth: int) -> object:
    """Read the value of an element according to its schema, and skip its closing tag."""
    if depth > _MAX_DEPTH:
        raise MalformedError("a value is nested too deeply")
    closer = rf"{_NS_PATTERN}</{re.escape(key)}>"
    problem = f"{key[:80]} is not closed"
    text = cursor.up_to(_NS, problem)
    if cursor.take(closer):
        return _plain(text, types_in(schema), is_nested=depth > 0)
    if text:
        raise MalformedError(f"{key[:80]} holds both text and elements")
    pairs: list[tuple[str, object]] = []
    while found := cursor.take(rf"{_NS_PATTERN}<([^/<>\n][^<>\n]*)>"):
        value = _element(cursor, found[1], _inside(schema, found[1]), depth + 1)
        pairs.append((found[1], value))
    cursor.expect(closer, problem)
    if types_in(schema) != {"object"} and all(name == "item" for name, _ in pairs):
        return [value for _, value in pairs]
    if len(dict(pairs)) != len(pairs):
        raise MalformedError(f"an element of {key[:80]} appears twice")
    return dict(pairs)


def _inside(schema: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return the schema of an element inside a list or an object; empty if it has none."""
    match schema:
        case {"properties": {**known}} if name in known:
            found = known[name]
        case {"items": found} if name == "item":
            pass
        case {"additionalProperties": found}:
            pass
        case _:
            return {}
    return found if isinstance(found, dict) else {}


def _plain(text: str, types: frozenset[str], *, is_nested: bool) -> object:
    """Convert text by its schema; inside lists and objects without a schema, decode it as JSON."""
    if not text and types <= {"array", "object"} and len(types) == 1:
        return [] if "array" in types else {}
    return typed_as(text, types or (_ANY if is_nested else types))


_ANY = frozenset({"string", "number", "boolean", "null"})


_NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_NAMES = {"true": True, "false": False, "null": None, "None": None, "True": True, "False": False}


def _gemma(cursor: _Cursor, tools: Sequence[ToolSpec]) -> tuple[str, dict[str, object]]:
    del tools
    head = cursor.expect(r"call:([^\s{}<>:]+)\{", "it must begin with call:NAME{")
    return head[1], _members(cursor, 0)


def _members(cursor: _Cursor, depth: int) -> dict[str, object]:
    members: dict[str, object] = {}
    for _ in _parts(cursor, r"\}", "arguments"):
        key = _text(cursor) if cursor.take(re.escape(cursor.quote)) else _bare_key(cursor)
        cursor.expect(":", "a colon must follow each key")
        if key in members:
            raise MalformedError(f"{key[:80]} appears twice")
        members[key] = _value(cursor, depth + 1)
    return members


def _parts(cursor: _Cursor, closer: str, noun: str) -> Iterator[None]:
    """Skip the commas between parts, each of which the caller reads, and the closer after them."""
    is_closed = cursor.take(closer)
    while not is_closed:
        yield
        if not (is_closed := cursor.take(closer)):
            cursor.expect(",", f"a comma must stand between {noun}")


def _bare_key(cursor: _Cursor) -> str:
    return cursor.expect(r"[^\s{}\[\]:,<>]+", "a key must come here")[0]


def _text(cursor: _Cursor) -> str:
    text = cursor.up_to(cursor.quote, "a text is not closed")
    cursor.at += len(cursor.quote)
    return text


def _value(cursor: _Cursor, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise MalformedError("a value is nested too deeply")
    if cursor.take(re.escape(cursor.quote)):
        return _text(cursor)
    if cursor.take(r"\{"):
        return _members(cursor, depth)
    if cursor.take(r"\["):
        return [_value(cursor, depth + 1) for _ in _parts(cursor, r"\]", "items")]
    if found := cursor.take(rf"{_NUMBER}(?=[,\]}}])"):
        return _json(found[0], "number")
    if found := cursor.take(rf"(?:{'|'.join(_NAMES)})(?=[,\]}}])"):
        return _NAMES[found[0]]
    raise MalformedError("a value must be text in its marks, a number, a constant, a list or a map")


KIMI_K3 = TypedParser(
    Delimiters("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    ("<|open|>", "<|close|>", "<|sep|>"),
    _kimi,
    is_block=True,
)
MINIMAX_M3 = TypedParser(
    Delimiters(f"{_NS}<tool_call>", f"{_NS}</tool_call>"),
    (_NS, "<tool_call>", "</tool_call>", "</invoke>"),
    _minimax,
    is_block=True,
)
GEMMA4 = TypedParser(
    Delimiters("<|tool_call>", "<tool_call|>"),
    ("<|tool_call>", "<tool_call|>", '<|"|>'),
    _gemma,
    quote='<|"|>',
)
FUNCTIONGEMMA = TypedParser(
    Delimiters("<start_function_call>", "<end_function_call>"),
    ("<start_function_call>", "<end_function_call>", "<escape>"),
    _gemma,
    quote="<escape>",
)
