"""Separate the text of a recorded turn from its calls, without its tokenizer.

Used by exports. The parser of the recorded format reads the decoded text again; the attempts are
cut out only if they are exactly the recorded ones. Nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from swe_rollout.agent.family import FAMILIES, Family
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Reasoning, SampledText
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.extension import ExtensionError
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.trajectory import TokenPath
from swe_rollout.types.turn import CallStatus, FinishReason, ToolCall, Turn

_CUT: Final = "\0"
"""Stands for a call that was cut out."""
_SECTIONS: Final[Mapping[str, tuple[str, str]]] = {
    ToolFormat.KIMI_K2: (r"<\|tool_calls_section_begin\|>", r"<\|tool_calls_section_end\|>"),
    ToolFormat.DEEPSEEK_V3: ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ToolFormat.DEEPSEEK_V31: ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ToolFormat.DEEPSEEK_V32: ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
    ToolFormat.DEEPSEEK_V4: ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
    ToolFormat.MINIMAX_M2: ("<minimax:tool_call>", "</minimax:tool_call>"),
    ToolFormat.MUSE: ("<atem:function_calls>", "</atem:function_calls>"),
    ToolFormat.MISTRAL: (r"\[TOOL_CALLS\]\s*\[", r"\]"),
    ToolFormat.SOLAR: (r"<\|tool_calls\|>", ""),
    ToolFormat.LLAMA3: ("", ""),
}
"""Patterns of the text around a turn's calls, which commas or semicolons may separate; the span
of each call lies inside."""
_STARTS: Final[Mapping[str, tuple[str, ...]]] = {
    ToolFormat.HARMONY: ("<|start|>", "<|channel|>"),
}
"""Starts of a call, for parsers whose spans also include text before it."""


@dataclass(frozen=True, slots=True)
class RecordedText:
    """The text of a recorded turn."""

    sampled: str
    """The whole turn, without the token that ended it."""
    words: str | None
    """The turn without its calls, including its reasoning. None if a call did not parse, or if
    the calls can't be separated from the text exactly."""


def recorded_text(
    turn: Turn, path: TokenPath | None, tools: Sequence[ToolSpec] = ()
) -> RecordedText:
    """Read the text of a recorded turn; `tools` are those that the policy was offered."""
    sampled = _without_end(turn, path)
    if not turn.tool_calls:
        return RecordedText(sampled, sampled)
    if path is None or any(call.status is not CallStatus.OK for call in turn.tool_calls):
        return RecordedText(sampled, None)
    for opened in (False, True):
        found = _attempts(sampled, path, tools, opened=opened)
        if [call.raw for call in found] == [call.raw for call in turn.tool_calls]:
            return RecordedText(sampled, _cut_out(sampled, path.tool_format, found))
    return RecordedText(sampled, None)


def _attempts(
    sampled: str, path: TokenPath, tools: Sequence[ToolSpec], *, opened: bool
) -> tuple[ToolCall, ...]:
    """Parse the text, with character offsets instead of token indices."""
    text = SampledText(sampled, (), token_at=lambda offset: offset)
    family = _family(path)
    reasoning = replace(family.reasoning if family else Reasoning(), opened=opened)
    try:
        parser = parser_for(path.tool_format)
        return parser.parse(text, tools=tools, reasoning=reasoning)
    except ExtensionError:
        return ()
    except Exception:  # noqa: BLE001 - a parser of the user's own
        return ()


def _cut_out(sampled: str, form: str, calls: Sequence[ToolCall]) -> str | None:
    """Return the text without its calls and without sections that contained only calls.

    Return None if that would lose text or leave part of a section.
    """
    if _CUT in sampled:
        return None
    starts = _STARTS.get(form, "")
    pieces, at = list[str](), 0
    for call in calls:
        if call.span is None or not sampled.startswith(starts, call.span.start):
            return None
        # Calls of one list share its span.
        pieces += [sampled[at : max(at, call.span.start)], _CUT]
        at = max(at, call.span.end)
    left = "".join([*pieces, sampled[at:]])
    if form in _SECTIONS:
        opener, closer = _SECTIONS[form]
        left = re.sub(rf"{opener}\s*(?:{_CUT}[\s,;]*)+{closer}", "", left)
        if opener and re.search(opener, left):
            return None
    return left.replace(_CUT, "").rstrip()


def _without_end(turn: Turn, path: TokenPath | None) -> str:
    """Return the text without the token that ended the turn, if the record or its family tells."""
    if path is None or turn.finish_reason is not FinishReason.STOP:
        return turn.text
    family = _family(path)
    ends = path.ends or ((family.end, *family.other_ends) if family else ())
    found = (end for end in ends if turn.text.endswith(end))
    return turn.text.removesuffix(max(found, key=len, default=""))


def _family(path: TokenPath) -> Family | None:
    return next((each for each in FAMILIES if each.name == path.family), None)
