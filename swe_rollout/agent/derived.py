"""Derive families from a template: which token may end a turn, and how reasoning is marked.

This is for templates that match no family in `agent.family`. Each derived family is a candidate:
`template_probe` tries them on whole conversations and takes the first that passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product, takewhile
from typing import Final

from swe_rollout.agent.dialect import Dialect, turn_messages
from swe_rollout.agent.encoding import Encoding, Scaffold
from swe_rollout.agent.family import FAMILIES, Family
from swe_rollout.agent.parsers.base import Reasoning
from swe_rollout.agent.template import SYSTEM, TEMPLATE_ERRORS, ChatTemplate
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall

_SAID: Final = "Said58c2d7."
_RESULT: Final = "Result91be0f."
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
    ("<think:opensource>", "</think:opensource>"),
    ("<thinking>", "</thinking>"),
    ("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
)
"""Pairs of reasoning marks; a template is searched for the end marks."""
_KIMI_K3: Final = Reasoning(
    "<|open|>think<|sep|>",
    "<|close|>think<|sep|>",
    headers=frozenset({"<|open|>", "<|close|>"}),
)


class DerivedFamilies:
    """The grammar that one template reveals, rendered with a tool if it needs one."""

    def __init__(self, template: ChatTemplate, encoding: Encoding, tool: ToolSpec) -> None:
        self._template = template
        self._encoding = encoding
        self._tool = tool
        turn: dict[str, object] = {"role": "assistant", "content": _SAID}
        inner = self._rendered([_TASK, turn, _NEXT], (), (tool,))
        self.writes_turns = _SAID in inner
        """Whether the template writes the policy's text at all."""
        self._inner = inner.rpartition(_SAID)[2].partition(str(_NEXT["content"]))[0]
        """The text between a turn without calls and the content of the next message."""
        last = self._rendered([_TASK, turn], (), (tool,)).rpartition(_SAID)[2]
        # Some templates end a turn only if another message follows.
        self.behind = last or self._inner
        """The text after a turn without calls, up to the content of the next message."""

    def families(self) -> Iterator[Family]:
        """Yield families whose end is a token that the template writes after a turn."""
        opening = self._opening()
        closing = _before_next(self._controls(self.behind), opening)
        reasoning = _reasoning(self._template.source)
        # A token that starts a turn can't also end one: nothing would be left to start the next.
        tried = set(opening)
        for end in (*closing, *self._behind_call(opening)):
            if end in tried:
                continue
            tried.add(end)
            yield Family(
                "derived",
                (),
                end,
                tuple(ToolFormat),
                after=self._after(end),
                other_ends=() if end in closing else tuple(closing[:1]),
                is_guess=end not in closing,
                reasoning=reasoning,
                reasoning_end="\n</think>\n\n" if reasoning == Reasoning() else reasoning.closer,
            )

    def _rendered(
        self, conversation: list[dict[str, object]], *toolsets: Sequence[ToolSpec]
    ) -> str:
        try:
            return self._template.render_any(conversation, *toolsets)
        except TEMPLATE_ERRORS:
            return ""

    def _controls(self, text: str) -> list[str]:
        controls = self._encoding.controls
        ids = self._encoding.encode([Scaffold(text)]) if text else []
        return list(dict.fromkeys(controls[i] for i in ids if i in controls))

    def _opening(self) -> list[str]:
        """Return the tokens that start a turn, with which the prompt ends."""
        for tools, start in product(((), (self._tool,)), ([SYSTEM], [])):
            try:
                asked = self._template.render([*start, _TASK], tools, prompted=False)
                begun = self._template.render([*start, _TASK], tools, prompted=True)
            except TEMPLATE_ERRORS:
                continue
            return self._controls(begun.removeprefix(asked)) if begun.startswith(asked) else []
        return []

    def _after(self, end: str) -> str:
        """Return the white space that the template writes after an end, also before a message."""
        _, found, rest = self.behind.partition(end)
        after = rest if found and not rest.strip() else ""
        _, found, rest = self._inner.partition(end)
        return after if not found or rest.startswith(after) else ""

    def _behind_call(self, opening: list[str]) -> Iterator[str]:
        """Yield the tokens between a call and its result."""
        call = ToolCall(CallStatus.OK, "", self._tool.name, {"path": _SAID})
        for speaks, as_text in product((True, False), (False, True)):
            dialect = Dialect(FAMILIES[-1], arguments_as_text=as_text, speaks_with_calls=speaks)
            turn = turn_messages("", [call], [_RESULT], dialect)
            text = self._rendered([_TASK, *turn], (self._tool,))
            between = text.rpartition(_RESULT)[0].rpartition(_SAID)[2]
            yield from _before_next(self._controls(between), opening)


def _before_next(tokens: list[str], opening: list[str]) -> list[str]:
    """Return the tokens before the one that starts the next turn."""
    return list(takewhile(lambda token: token not in opening[:1], tokens))


def _reasoning(source: str) -> Reasoning:
    # The source is JSON, in which a newline is written as two characters.
    for opener, closer in _REASONING:
        if closer in source or closer.encode("ascii", "backslashreplace").decode() in source:
            return Reasoning(opener, closer)
    if _KIMI_K3.closer in source or ("<|close|>" in source and "'think'" in source):
        return _KIMI_K3
    return Reasoning()
