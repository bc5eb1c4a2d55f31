"""Probes of the grammars of JSON calls, derived from a call as each family writes it.

Changes to that call probe what the grammars share; `_OWN` has cases for a single grammar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rollout_dev.parser_probes.calls import write_calls
from rollout_dev.parser_probes.probes import ExpectedCall, ParserProbe
from swe_rollout.agent.parsers.base import Reasoning
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall

_OK: Final = CallStatus.OK
_JSON: Final = CallStatus.INVALID_JSON
_OPEN: Final = CallStatus.UNCLOSED
_SHAPE: Final = CallStatus.MALFORMED
_NAMELESS: Final = CallStatus.MISSING_NAME
_UNKNOWN: Final = CallStatus.UNKNOWN_TOOL
_ARGUMENTS: Final = CallStatus.BAD_ARGUMENTS


def _call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(_OK, "", name, arguments)


_LS: Final = _call("bash", command="ls")
_RM: Final = _call("bash", command="rm -rf /")
_SUBMIT: Final = _call("submit")


@dataclass(frozen=True, slots=True)
class _Case:
    """A turn and the expected result: calls that run, and the statuses of those that don't."""

    name: str
    text: str
    expect: tuple[ToolCall | CallStatus | frozenset[CallStatus], ...] = ()
    is_opened: bool = False
    """Whether the prompt opened the reasoning."""


@dataclass(frozen=True, slots=True)
class _Written:
    """The parts of one call as a family writes it."""

    form: ToolFormat
    head: str
    """The text before the JSON; empty if the JSON is the whole turn."""
    body: str
    tail: str
    """The text that closes the call; empty if the end of the turn does."""

    @classmethod
    def of(cls, form: ToolFormat, call: ToolCall) -> _Written:
        found = re.fullmatch(r"([^\[{]*)(.*[\]}])([^\]}]*)", write_calls(form, [call]), re.DOTALL)
        assert found is not None, f"{form} writes no JSON"  # noqa: S101 - for mypy
        return cls(form, *found.groups())

    @property
    def text(self) -> str:
        return self.around(self.body)

    @property
    def is_list(self) -> bool:
        return self.body.startswith("[")

    @property
    def is_bare(self) -> bool:
        """Whether only a list marks a call, so that other text is not an attempt."""
        return self.form in {ToolFormat.XLAM, ToolFormat.FUNCTOOLS}

    def around(self, body: str) -> str:
        return f"{self.head}{body}{self.tail}"


_CHANGES: Final[tuple[tuple[str, str, str, tuple[CallStatus, ...]], ...]] = (
    ("a key twice", '"ls"', '"ls", "command": "rm"', (_JSON,)),
    ("single quotes", '"ls"', "'ls'", (_JSON,)),
    ("a key without quotes", '"command"', "command", (_JSON,)),
    ("a trailing comma", '"ls"', '"ls",', (_JSON,)),
    ("a comment", '"ls"', '"ls" /* files */', (_JSON,)),
    ("NaN", '"ls"', "NaN", (_JSON,)),
    ("a raw newline in a string", '"ls"', '"l\ns"', (_JSON,)),
    ("half of a surrogate pair", '"ls"', r'"\ud800"', (_JSON,)),
    ("a string that never ends", '"ls"', '"ls', (_JSON, _OPEN)),
    ("a brace too few", '"ls"}', '"ls"', (_JSON, _OPEN)),
    ("a brace too many", '"ls"}', '"ls"}}', (_JSON,)),
    ("arguments in a string", '{"command": "ls"}', r'"{\"command\": \"ls\"}"', (_ARGUMENTS,)),
    ("arguments in a list", '{"command": "ls"}', '["ls"]', (_ARGUMENTS,)),
    ("arguments that are null", '{"command": "ls"}', "null", (_ARGUMENTS,)),
    ("an argument that is missing", '"command": "ls"', '"timeout": 3', (_ARGUMENTS,)),
    ("an argument nobody asked for", '"ls"', '"ls", "x": 1', (_ARGUMENTS,)),
    ("a number for a string", '"ls"', "5", (_ARGUMENTS,)),
    ("white space around a key", '"command"', '" command"', (_ARGUMENTS,)),
    ("a key too many", '{"command": "ls"}', '{"command": "ls"}, "why": 1', (_SHAPE,)),
    ("an unknown tool", '"bash"', '"rm"', (_UNKNOWN,)),
    ("a name in capitals", '"bash"', '"Bash"', (_UNKNOWN,)),
    ("white space before the name", '"bash"', '" bash"', (_UNKNOWN,)),
    ("a newline behind the name", '"bash"', r'"bash\n"', (_UNKNOWN,)),
    ("an empty name", '"bash"', '""', (_NAMELESS,)),
    ("a number as name", '"bash"', "3", (_NAMELESS, _JSON)),
)
"""Changes to `_LS`, with the expected statuses."""


def json_probes(tools: Sequence[ToolSpec]) -> tuple[ParserProbe, ...]:
    """Return the probes of all JSON call grammars, which call `bash`, `edit` and `submit`."""
    return tuple(
        ParserProbe(
            name=f"{form}: {case.name}",
            tool_format=form,
            tools=tuple(tools),
            text=case.text,
            ids=(),
            tokenizer=None,
            reasoning=Reasoning(opened=case.is_opened),
            expect=tuple(map(_expected, case.expect)),
        )
        for form in FORMS
        for case in _cases(_Written.of(form, _LS))
    )


def _expected(expect: ToolCall | CallStatus | frozenset[CallStatus]) -> ExpectedCall:
    match expect:
        case ToolCall():
            return ExpectedCall(frozenset({_OK}), expect.name, expect.arguments, expect.id or None)
        case frozenset():
            return ExpectedCall(expect)
        case _:
            return ExpectedCall(frozenset({expect}))


def _cases(written: _Written) -> Iterator[_Case]:
    yield from _runs(written)
    for name, old, new, statuses in _CHANGES:
        assert old in written.body, f"{written.form} writes no {old}"  # noqa: S101 - or no change
        yield _Case(name, written.text.replace(old, new, 1), (frozenset(statuses),))
    yield from _shapes(written)
    yield from _drafts(written)
    yield from _delimited(written) if written.head else _undelimited(written)
    yield from _OWN.get(written.form, ())


def _runs(written: _Written) -> Iterator[_Case]:
    several = [_LS, _call("edit", path="a", line=3), _SUBMIT]
    values: dict[str, dict[str, object]] = {
        "every type, unicode": {
            "text": "x = 'é'  # 日本 🎉",
            "line": -3,
            "share": 0.5,
            "all": True,
            "lines": [1, 2],
            "note": None,
        },
        "a nested object": {"options": {"k": [1, {"z": None}], "": {}}},
        "quotes, escapes, indentation": {"text": "\t\"a\" \\ \\n 'b'\n    }]\n\n"},
        "a call in a string": {"text": f"echo '{written.text}' {written.tail}"},
        "reasoning marks in a string": {"text": "</think><think>"},
    }
    yield _Case("a call", written.text, (_LS,))
    yield _Case("no arguments", write_calls(written.form, [_SUBMIT]), (_SUBMIT,))
    yield _Case("several calls", write_calls(written.form, several), tuple(several))
    for name, more in values.items():
        call = _call("edit", path="a.py", **more)
        yield _Case(name, write_calls(written.form, [call]), (call,))
    escaped = written.text.replace('"ls"', r'"\u006cs"')
    yield _Case("an escape that nothing needs", escaped, (_LS,))
    indented = json.dumps(json.loads(written.body), indent=2)
    yield _Case("JSON on lines", written.around(f"\n{indented}\n") if written.tail else
                written.around(indented), (_LS,))  # fmt: skip
    broken = write_calls(written.form, [_call("rm"), _SUBMIT])
    yield _Case("two calls, one of an unknown tool", broken, (_UNKNOWN, _SUBMIT))
    yield _Case("no call at all", "I am done, all tests pass.")


def _shapes(written: _Written) -> Iterator[_Case]:
    """Yield cases in which the JSON is valid but not a call, or is not alone."""
    no_list = () if written.is_bare else (_SHAPE,)
    body = written.body
    if written.is_list:
        yield _Case("an object without its list", written.around(body[1:-1]), no_list)
        yield _Case("an empty list", written.around("[]"), (_SHAPE,))
        yield _Case("a list of one name", written.around('["bash"]'), (_SHAPE,))
    yield _Case("a list too many", written.around(f"[{body}]"), (_SHAPE,))
    yield _Case("JSON in a string", written.around(json.dumps(body)), no_list)
    yield _Case("a number", written.around("3"), no_list)
    yield _Case("words behind the JSON", written.around(f"{body} ok"), (_JSON,))
    yield _Case("a wide space behind the JSON", written.around(f"{body}\u00a0"), (_JSON,))
    yield _Case("the JSON twice", written.around(f"{body} {body}"), (_JSON,))
    nothing = () if written.is_bare else (_JSON,)
    yield _Case("words before the JSON", written.around(f"Sure: {body}"), nothing)


def _drafts(written: _Written) -> Iterator[_Case]:
    text, draft = written.text, _Written.of(written.form, _RM).text
    perhaps = f"Perhaps {draft} now?"
    yield _Case("reasoning, then a call", f"<think>\nI look.\n</think>\n\n{text}", (_LS,))
    thought = f"{perhaps}\n</think>\n{text}"
    yield _Case("a draft in the reasoning is no call", f"<think>{thought}", (_LS,))
    yield _Case("a draft where the prompt opened the reasoning", thought, (_LS,), is_opened=True)
    yield _Case("reasoning that never ends holds no call", text, (), is_opened=True)
    for at, cut in enumerate((_cut_behind(written, '"comm'), _cut_behind(written, '"ls"}')), 1):
        yield _Case(f"cut in the JSON, place {at}", cut, (_OPEN,))


def _cut_behind(written: _Written, behind: str) -> str:
    """Return a turn that ends after the given text of its call."""
    before, found, _ = written.text.partition(behind)
    return before + found


def _delimited(written: _Written) -> Iterator[_Case]:
    head, body, tail, text = written.head, written.body, written.tail, written.text
    yield _Case("words before the call", f"I look.\n{text}", (_LS,))
    yield _Case("an opener without its first character", text[1:])
    yield _Case("the JSON without an opener", body + tail)
    nothing = () if written.is_bare else (frozenset({_JSON, _OPEN}),)
    yield _Case("an opener alone", head, nothing)
    yield _Case("nothing between the delimiters", head + tail, nothing)
    if not tail:
        yield _Case("words behind the call", f"{text}\nI look.", (_JSON,))
        yield _Case("two openers that each have a call", text + text, (_LS, _LS))
        broken = text.replace('"ls"', "")
        yield _Case("a broken call swallows the one behind it", broken + text, (_JSON,))
        return
    yield _Case("words behind the call", f"{text}\nI look.", (_LS,))
    yield _Case("not closed", head + body, (_OPEN,))
    yield _Case("half of the closer", text.rstrip()[:-1], (_OPEN,))
    yield _Case("the closer inside the JSON", text.replace('"ls"', f'"ls"{tail}'), (_JSON,))
    yield _Case("a closer alone", tail)
    yield _Case("the opener twice", head + text, (_OPEN, _LS))
    cut = text.partition('ls"')[0] + text
    yield _Case("an opener inside an unclosed string", cut, (_OPEN, _SHAPE))
    yield _Case("a call quoted in broken JSON", text.replace('"ls"', f"'{text}'"), (_OPEN, _SHAPE))
    yield _Case("a closing delimiter behind two calls", f"{text}{text}\n{tail}", (_SHAPE, _SHAPE))
    yield _Case("a call that is cut behind a call", text + head + body, (_LS, _OPEN))
    yield _Case("a closer before the JSON", head + tail + body + tail, (_JSON,))
    yield _Case("a broken call, then a call", text.replace('"ls"', "") + text, (_JSON, _LS))


def _undelimited(written: _Written) -> Iterator[_Case]:
    text = written.text
    yield _Case("words before the call", f"I look.\n{text}")
    yield _Case("words behind the call", f"{text}\nI look.", (_JSON,))
    yield _Case("a fence around the call", f"```json\n{text}\n```")


def _renamed(form: ToolFormat, old: str, new: str) -> str:
    text = write_calls(form, [_LS])
    assert old in text, f"{form} writes no {old}"  # noqa: S101 - the probe would show nothing
    return text.replace(old, new, 1)


_BASH: Final = '{"name": "bash", "arguments": {"command": "ls"}}'


def _other_keys(form: ToolFormat) -> tuple[_Case, ...]:
    """Return cases with the keys of other families instead of, or next to, a family's own."""
    named = '"tool_name": "bash"'
    return (
        _Case("the name under the key of others", _renamed(form, named, '"name": "bash"'),
              (_NAMELESS,)),
        _Case("two names", _renamed(form, named, f'{named}, "name": "submit"'), (_SHAPE,)),
        _Case("arguments under the key of others", _renamed(form, "parameters", "arguments"),
              (_SHAPE,)),
    )  # fmt: skip


_OWN: Final[Mapping[ToolFormat, tuple[_Case, ...]]] = {
    ToolFormat.HUNYUAN: (
        _Case(
            "an id",
            f'<tool_calls>[{_BASH[:-1]}, "id": "c1"}}]</tool_calls>',
            (ToolCall(_OK, "", "bash", {"command": "ls"}, id="c1"),),
        ),
        _Case("an id that is no text", f'<tool_calls>[{_BASH[:-1]}, "id": 1}}]</tool_calls>',
              (_SHAPE,)),
    ),
    ToolFormat.MINIMAX_M1: (
        _Case("two objects on one line", f"<tool_calls>\n{_BASH} {_BASH}\n</tool_calls>", (_JSON,)),
        _Case("a comma between lines", f"<tool_calls>\n{_BASH},\n{_BASH}\n</tool_calls>", (_JSON,)),
        _Case("an empty line between", f"<tool_calls>\n{_BASH}\n\n{_BASH}\n</tool_calls>",
              (_LS, _LS)),
        _Case("a second line that is cut", f"<tool_calls>\n{_BASH}\n{_BASH[:-4]}", (_OPEN,)),
    ),
    ToolFormat.NEMOTRON: (
        _Case("tags in small letters", f"<toolcall>[{_BASH}]</toolcall>"),
        _Case("the keys of others", _renamed(ToolFormat.NEMOTRON, "arguments", "parameters"),
              (_SHAPE,)),
    ),
    ToolFormat.GRANITE: (
        _Case("the closer of another family", f"<|tool_call|>[{_BASH}]<|/tool_call|>", (_JSON,)),
    ),
    ToolFormat.PHI4: (
        _Case("the opener in place of the closer", f"<|tool_call|>[{_BASH}]<|tool_call|>",
              (_OPEN, frozenset({_JSON, _OPEN}))),
    ),
    ToolFormat.GRANITE_20B: (
        _Case("a closer, which it has not", f"<function_call>{_BASH}</function_call>", (_JSON,)),
    ),
    ToolFormat.GIGACHAT: (
        _Case("two objects behind one opener", f"<|function_call|>{_BASH}\n{_BASH}", (_JSON,)),
    ),
    ToolFormat.INTERNLM: (
        _Case("an action without its plugin",
              _renamed(ToolFormat.INTERNLM, "<|plugin|>", ""), (_SHAPE,)),
        _Case("words between action and plugin",
              _renamed(ToolFormat.INTERNLM, "<|plugin|>", " <|plugin|>"), (_SHAPE,)),
        _Case("an action of another kind",
              _renamed(ToolFormat.INTERNLM, "<|plugin|>", "<|interpreter|>"), (_SHAPE,)),
        _Case("arguments under the key of others",
              _renamed(ToolFormat.INTERNLM, "parameters", "arguments"), (_SHAPE,)),
    ),
    ToolFormat.APERTUS: (
        _Case("two tools in one object",
              '<|tools_prefix|>[{"bash": {"command": "ls"}, "submit": {}}]<|tools_suffix|>',
              (_SHAPE,)),
        _Case("an empty object", "<|tools_prefix|>[{}]<|tools_suffix|>", (_SHAPE,)),
        _Case("the keys of others", f"<|tools_prefix|>[{_BASH}]<|tools_suffix|>", (_SHAPE,)),
    ),
    ToolFormat.FUNCTOOLS: (
        _Case("a word of the text", f"It is in functools.wraps.\nfunctools[{_BASH}]", (_LS,)),
        _Case("white space before the list", f"functools [{_BASH}]"),
    ),
    ToolFormat.COHERE: (
        *_other_keys(ToolFormat.COHERE),
        _Case("an id that is no text", _renamed(ToolFormat.COHERE, '"0"', "0"), (_SHAPE,)),
    ),
    ToolFormat.COMMAND_R: (
        *_other_keys(ToolFormat.COMMAND_R),
        _Case("a fence of no language", _renamed(ToolFormat.COMMAND_R, "```json", "```")),
        _Case("a fence without the action", _renamed(ToolFormat.COMMAND_R, "Action: ", "")),
    ),
    ToolFormat.XLAM: (
        _Case("two lists", f"[{_BASH}]\n[{_BASH}]", (_JSON,)),
        _Case("a list behind a list's reasoning", f"<think>[1]</think>[{_BASH}]", (_LS,)),
    ),
}  # fmt: skip
FORMS: Final = tuple(_OWN)
"""The formats that these probes cover."""
