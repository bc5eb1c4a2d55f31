"""Derive families from a template: which token may end a turn, and how reasoning is marked.

For templates of no family in `agent.family`. What is derived is only proposed: `template_probe`
tries each proposal on whole conversations and takes the first that holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product, takewhile
from typing import Final

from swe_rollout.agent.dialect import Dialect, assistant_message, result_messages
from swe_rollout.agent.encoding import Encoding, Scaffold
from swe_rollout.agent.family import Family
from swe_rollout.agent.parsers.base import Reasoning
from swe_rollout.agent.template import TEMPLATE_ERRORS, ChatTemplate
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall

_SAID: Final = "Said58c2d7."
_RESULT: Final = "Result91be0f."
_SYSTEM: Final[dict[str, object]] = {"role": "system", "content": "You fix code."}
_TASK: Final[dict[str, object]] = {"role": "user", "content": "A task."}
_NEXT: Final[dict[str, object]] = {"role": "user", "content": "Next03fd."}
_REASONING: Final = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ("<think:opensource>", "</think:opensource>"),
    ("<thinking>", "</thinking>"),
    ("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
)
"""The marks of reasoning, by the end that a template mentions."""


def derived_families(
    template: ChatTemplate, encoding: Encoding, tool: ToolSpec
) -> Iterator[Family]:
    """Yield families whose end is a token that the template writes behind a turn."""
    plain, inner = text_behind_turn(template, tool), _before_message(template, tool)
    opening = _opening(template, encoding, tool)
    closing = _before_next(_controls(plain, encoding), opening)
    reasoning = _reasoning(template.source)
    # A token that begins a turn ends none: nothing would be left to begin the next one with.
    tried = set(opening)
    for end in (*closing, *_behind_call(template, encoding, tool, opening)):
        if end in tried:
            continue
        tried.add(end)
        others = () if end in closing else tuple(closing[:1])
        yield Family(
            "derived",
            (),
            end,
            tuple(ToolFormat),
            after=_after((plain, inner), end),
            other_ends=others,
            is_guess=end not in closing,
            reasoning=reasoning,
            reasoning_end=_reasoning_end(reasoning),
        )


def writes_turns(template: ChatTemplate, tool: ToolSpec) -> bool:
    """Whether the template writes what the policy says at all."""
    turn: dict[str, object] = {"role": "assistant", "content": _SAID}
    return _SAID in _rendered(template, [_TASK, turn, _NEXT], tool)


def _before_next(tokens: list[str], opening: list[str]) -> list[str]:
    """Return the tokens before the one that begins the next turn."""
    return list(takewhile(lambda token: token not in opening[:1], tokens))


def _opening(template: ChatTemplate, encoding: Encoding, tool: ToolSpec) -> list[str]:
    """Return the tokens of the start of a turn, which the prompt ends in."""
    for tools, start in product(((), (tool,)), ([_SYSTEM], [])):
        try:
            asked = template.render([*start, _TASK], tools, prompted=False)
            begun = template.render([*start, _TASK], tools, prompted=True)
        except TEMPLATE_ERRORS:
            continue
        return _controls(begun.removeprefix(asked), encoding) if begun.startswith(asked) else []
    return []


def _after(texts: tuple[str, str], end: str) -> str:
    """Return the white space that the template puts behind an end, also before a message."""
    last, inner = texts
    _, found, rest = last.partition(end)
    after = rest if found and not rest.strip() else ""
    _, found, rest = inner.partition(end)
    return after if not found or rest.startswith(after) else ""


def text_behind_turn(template: ChatTemplate, tool: ToolSpec) -> str:
    """Return what stands behind a turn without calls, up to the text of the next message."""
    turn: dict[str, object] = {"role": "assistant", "content": _SAID}
    last = _rendered(template, [_TASK, turn], tool)
    if behind := last.rpartition(_SAID)[2]:
        return behind
    # Some templates end a turn only once another message follows.
    return _before_message(template, tool)


def _before_message(template: ChatTemplate, tool: ToolSpec) -> str:
    """Return what stands between a turn without calls and the text of a message."""
    turn: dict[str, object] = {"role": "assistant", "content": _SAID}
    inner = _rendered(template, [_TASK, turn, _NEXT], tool)
    return inner.rpartition(_SAID)[2].partition(str(_NEXT["content"]))[0]


def _behind_call(
    template: ChatTemplate, encoding: Encoding, tool: ToolSpec, opening: list[str]
) -> Iterator[str]:
    """Yield the tokens between a call and its result."""
    call = ToolCall(CallStatus.OK, "", tool.name, {"path": _SAID})
    for dialect in (
        Dialect(),
        Dialect(arguments_as_text=True),
        Dialect(speaks_with_calls=False),
        Dialect(speaks_with_calls=False, arguments_as_text=True),
    ):
        turn = assistant_message("", [call], dialect)
        answered = result_messages([call], [_RESULT], dialect)
        text = _rendered(template, [_TASK, turn, *answered], tool, told=True)
        between = text.rpartition(_RESULT)[0].rpartition(_SAID)[2]
        yield from _before_next(_controls(between, encoding), opening)


def _rendered(
    template: ChatTemplate,
    conversation: list[dict[str, object]],
    tool: ToolSpec,
    *,
    told: bool = False,
) -> str:
    """Render with a tool where `told`, and else where the template can't do without."""
    without: tuple[tuple[ToolSpec, ...], ...] = () if told else ((),)
    for tools, start in product((*without, (tool,)), ([_SYSTEM], [])):
        try:
            return template.render([*start, *conversation], tools, prompted=False)
        except TEMPLATE_ERRORS:
            continue
    return ""


def _controls(text: str, encoding: Encoding) -> list[str]:
    ids = encoding.encode([Scaffold(text)]) if text else []
    return list(dict.fromkeys(encoding.controls[i] for i in ids if i in encoding.controls))


def _reasoning(source: str) -> Reasoning:
    # The source is JSON, in which a newline is written as two characters.
    for opener, closer in _REASONING:
        if closer in source or closer.encode("ascii", "backslashreplace").decode() in source:
            return Reasoning(opener, closer)
    if "<|close|>" in source and "'think'" in source:
        return Reasoning("<|open|>think<|sep|>", "<|close|>think<|sep|>")
    return Reasoning()


def _reasoning_end(reasoning: Reasoning) -> str:
    return "\n</think>\n\n" if reasoning == Reasoning() else reasoning.closer
