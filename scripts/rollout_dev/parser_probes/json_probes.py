"""Probes of the grammars of JSON calls, derived from a call as each family writes it.

`json_probes.yaml` has the cases, and explains them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Final

import msgspec
import yaml

from rollout_dev.parser_probes.calls import write_calls
from rollout_dev.parser_probes.probes import ExpectedCall, ParserProbe
from swe_rollout.agent.parsers.base import Reasoning
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall

_BARE: Final = {ToolFormat.XLAM, ToolFormat.FUNCTOOLS}
"""The formats in which only a list marks a call, so that other text is no attempt."""


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, object] = {}
    id: str = ""


_Expected = str | list[str] | _Call


class _Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    text: str = ""
    replace: tuple[str, str] | None = None
    cut: str = ""
    calls: list[str | _Call] = []
    opened: bool = False
    only: list[str] = []
    expect: list[_Expected] | None = None
    bare: list[_Expected] | None = None


class _Own(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    of: list[ToolFormat]
    cases: list[_Case]


class _Cases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    calls: dict[str, _Call]
    shared: list[_Case]
    own: list[_Own]


@cache
def _all() -> _Cases:
    file = Path(__file__).with_suffix(".yaml")
    return msgspec.convert(yaml.safe_load(file.read_text("utf-8")), _Cases)


def json_probes(tools: Sequence[ToolSpec]) -> tuple[ParserProbe, ...]:
    """Return the probes of all JSON call grammars, which call `bash`, `edit` and `submit`."""
    return tuple(
        ParserProbe(
            name=f"{form}: {case.name}",
            tool_format=form,
            tools=tuple(tools),
            text=_text(case, form, parts),
            ids=(),
            tokenizer=None,
            reasoning=Reasoning(opened=case.opened),
            expect=tuple(_expected(case, form)),
        )
        for form in dict.fromkeys(form for each in _all().own for form in each.of)
        for parts in [_parts(form)]
        for case in (*_all().shared, *(c for o in _all().own if form in o.of for c in o.cases))
        if all(_is(parts, when) for when in case.only)
    )


def _called(call: str | _Call, parts: Mapping[str, str]) -> ToolCall:
    """Return a call; parts of the written one may stand in its arguments."""
    made = _all().calls[call] if isinstance(call, str) else call
    arguments = {
        key: Template(value).safe_substitute(parts) if isinstance(value, str) else value
        for key, value in made.arguments.items()
    }
    return ToolCall(CallStatus.OK, "", made.name, arguments, id=made.id)


def _parts(form: ToolFormat) -> dict[str, str]:
    """Return what may stand in texts; the head and the tail are empty where there is none."""
    text = write_calls(form, [_called("ls", {})])
    found = re.fullmatch(r"([^\[{]*)(.*[\]}])([^\]}]*)", text, re.DOTALL)
    assert found is not None, f"{form} writes no JSON"  # noqa: S101 - for mypy
    head, body, tail = found.groups()
    return {
        "text": text,
        "head": head,
        "body": body,
        "tail": tail,
        "inner": body[1:-1],
        "quoted": json.dumps(body),
        "indented": json.dumps(json.loads(body), indent=2),
        "headless": text[1:],
        "half": text.rstrip()[:-1],
        "draft": text.replace('"ls"', '"rm -rf /"'),
        "broken": text.replace('"ls"', ""),
        "bash": '{"name": "bash", "arguments": {"command": "ls"}}',
    }


def _is(parts: Mapping[str, str], when: str) -> bool:
    word = when.removeprefix("not ")
    holds = {
        "list": parts["body"].startswith("["),
        "delimited": bool(parts["head"]),
        "closed": bool(parts["head"] and parts["tail"]),
    }
    return holds[word] is (word == when)


def _text(case: _Case, form: ToolFormat, parts: Mapping[str, str]) -> str:
    if case.calls:
        return write_calls(form, [_called(each, parts) for each in case.calls])
    text = parts["text"]
    for piece in filter(None, (case.cut, case.replace and case.replace[0])):
        # A probe that changes nothing would show nothing.
        assert piece in text, f"{form}, {case.name}: writes no {piece}"  # noqa: S101
    written = Template(case.text).safe_substitute(parts)
    if case.cut:
        return text[: text.index(case.cut) + len(case.cut)] + written
    if case.replace:
        return text.replace(case.replace[0], Template(case.replace[1]).safe_substitute(parts), 1)
    return written or text


def _expected(case: _Case, form: ToolFormat) -> Iterator[ExpectedCall]:
    wanted = case.calls if case.expect is None else case.expect
    if case.bare is not None and form in _BARE:
        wanted = case.bare
    for each in wanted:
        match each:
            case str() if each not in _all().calls:
                yield ExpectedCall(frozenset({CallStatus(each)}))
            case list():
                yield ExpectedCall(frozenset(map(CallStatus, each)))
            case _:
                call = _called(each, _parts(form))
                ok = frozenset({CallStatus.OK})
                yield ExpectedCall(ok, call.name, call.arguments, call.id or None)
