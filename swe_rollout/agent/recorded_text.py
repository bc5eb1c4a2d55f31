"""Tell the words of a recorded turn from its calls, without its tokenizer.

For exports. The parser of the record's own format reads the decoded text once more; only where it
finds exactly the recorded attempts are they cut out. Nothing is guessed.
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
"""Patterns of what encloses the calls of a turn, which commas or semicolons may part; the span of
each call lies inside."""
_STARTS: Final[Mapping[str, tuple[str, ...]]] = {
    ToolFormat.HARMONY: ("<|start|>", "<|channel|>"),
}
"""What a call begins with, where the parser also counts words before it as its own."""


@dataclass(frozen=True, slots=True)
class RecordedText:
    """What a turn says."""

    sampled: str
    """All of it, without the token that ended it."""
    words: str | None
    """The same without its calls; reasoning stays as it was sampled. None where a call did not
    parse, or the calls can't be told from the words exactly."""


def recorded_text(
    turn: Turn, path: TokenPath | None, tools: Sequence[ToolSpec] = ()
) -> RecordedText:
    """Read the text of a recorded turn. `tools` are those that the policy was offered."""
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
    """Parse the text, with offsets of characters in place of tokens."""
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
    """Return the text without its calls, and without the sections that held nothing but them.

    None where that would lose words, or leave a part of a section.
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
    """Remove the token that ended the turn, where its family is known."""
    family = _family(path)
    if family is None or turn.finish_reason is not FinishReason.STOP:
        return turn.text
    ends = (family.end, *family.other_ends)
    found = next((end for end in ends if turn.text.endswith(end)), "")
    return turn.text.removesuffix(found)


def _family(path: TokenPath | None) -> Family | None:
    return next((each for each in FAMILIES if path and each.name == path.family), None)
