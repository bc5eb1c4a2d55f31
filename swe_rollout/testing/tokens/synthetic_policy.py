"""A synthetic policy, which samples scripted turns as the model's own template writes them.

The template's rendering of a turn is what the model was trained to produce, so its tokens are the
canonical ones. Nothing here goes through `Renderer.delta`. Used by `testing.tokens.model`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from tokenizers import Tokenizer

from swe_rollout.agent.dialect import earlier_messages, messages, turn_messages
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.turn_probe import common_prefix_length
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.testing.tokens.patterns import (
    FIRST,
    TOOLS,
    ConversationPattern,
    ScriptedCall,
    ScriptedTurn,
)
from swe_rollout.types.turn import CallStatus, ToolCall

_NONCE: Final = "Zq7"
_KEPT_SHARE: Final = 0.75
"""Share of the text kept of a turn that is cut short."""
_REASONING: Final = "\nI think about it.\n"


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """One policy turn in tokens, and how the parser reads it."""

    text: str
    ids: tuple[int, ...]
    """The tokenizer's own segmentation, including the token that ends the turn."""
    intended: tuple[ToolCall, ...]
    """The calls the script asked for."""
    parsed: tuple[ToolCall, ...]
    """The calls the parser found."""
    scripted_results: tuple[str, ...]
    """One result per intended call."""
    opens_reasoning: bool
    """Whether the prompt before it ended inside the reasoning."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls to respond to: the parsed ones, or the intended ones if none parsed."""
        return self.parsed or self.intended

    @property
    def results(self) -> tuple[str, ...]:
        """One result per call in `calls`; the last scripted result repeats."""
        last = len(self.scripted_results) - 1
        return tuple(self.scripted_results[min(index, last)] for index in range(len(self.calls)))


class SyntheticPolicy:
    """Sample scripted turns in the grammar of a renderer's template."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._parser = renderer.parser
        self._stops = [renderer.decode([i]) for i in renderer.stop_token_ids]
        self._backend = _without_truncation(renderer.tokenizer.backend_tokenizer)
        sample = f"x{self._stops[0]} x\n{self._stops[0]}x"
        self.changes_whitespace = self.text(self.encode(sample)) != sample
        """Whether the tokenizer adds or removes white space when text is encoded and decoded."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokenise a text canonically, with control tokens whole."""
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def comparable(self, text: str) -> str:
        """Return the text, without white space if the tokenizer itself changes white space."""
        return "".join(text.split()) if self.changes_whitespace else text

    def text(self, ids: Sequence[int]) -> str:
        """Decode ids, each run between control tokens separately.

        Decoders of some vocabularies insert a space after a control token that was never written.
        """
        controls = self._renderer.controls
        runs = groupby(ids, key=controls.__contains__)
        return "".join(
            "".join(controls[i] for i in run) if is_control else self._renderer.decode(list(run))
            for is_control, run in runs
        )

    def sample(self, pattern: ConversationPattern) -> tuple[SampledTurn, ...]:
        """Sample every turn of a pattern, in order."""
        renderer = self._renderer
        rendered = renderer.prompt(self.first_messages(), TOOLS)
        turns: list[SampledTurn] = []
        for scripted in pattern.turns:
            earlier_calls = sum(len(turn.intended) for turn in turns)
            turn = self._sample_turn(
                scripted, opened=rendered.opens_reasoning, earlier_calls=earlier_calls
            )
            turns.append(turn)
            rendered = renderer.delta(turn.ids[-1], turn.calls, results=turn.results, tools=TOOLS)
        return tuple(turns)

    def first_messages(self) -> Sequence[Message]:
        """Return the first messages, without the system message if the template takes none."""
        return FIRST if self._renderer.grammar.dialect.has_system else FIRST[1:]

    def intended_calls(
        self, calls: Sequence[ScriptedCall], earlier_calls: int
    ) -> tuple[ToolCall, ...]:
        """Return calls with the ids a policy would assign after `earlier_calls` earlier ones."""
        return tuple(
            ToolCall(
                CallStatus.OK,
                "",
                call.tool,
                dict(call.arguments),
                id=self._id(call, earlier_calls + index),
            )
            for index, call in enumerate(calls)
        )

    def _id(self, call: ScriptedCall, index: int) -> str:
        match self._renderer.tool_format:
            case ToolFormat.KIMI_K2:
                return f"functions.{call.tool}:{index}"
            case ToolFormat.MISTRAL | ToolFormat.MISTRAL_V11 | ToolFormat.SOLAR:
                return f"c{index:08}"
            case ToolFormat.COHERE:
                return str(index)
            case _:
                return ""

    def _sample_turn(
        self, scripted: ScriptedTurn, *, opened: bool, earlier_calls: int
    ) -> SampledTurn:
        intended = self.intended_calls(scripted.calls, earlier_calls)
        text = self._render_turn(scripted.content, intended, opened=opened)
        if scripted.reasons:
            text = self._with_reasoning(text)
        end = next(stop for stop in self._stops if text.endswith(stop))
        if scripted.is_cut_short:
            text = text[: int(len(text.removesuffix(end)) * _KEPT_SHARE)] + end
        ids = self.encode(text)
        parsed = self._parse(ids, opened=opened)
        return SampledTurn(text, ids, intended, parsed, scripted.results, opened)

    def resegmented(self, turn: SampledTurn, ids: Sequence[int]) -> SampledTurn:
        """Return the turn with other token ids, parsed again."""
        parsed = self._parse(ids, opened=turn.opens_reasoning)
        return replace(turn, ids=tuple(ids), parsed=parsed)

    def _parse(self, ids: Sequence[int], *, opened: bool) -> tuple[ToolCall, ...]:
        reasoning = self._renderer.reasoning(opened=opened)
        return self._parser.parse(self._renderer.sampled(ids), tools=TOOLS, reasoning=reasoning)

    def _render_turn(self, content: str, calls: Sequence[ToolCall], *, opened: bool) -> str:
        """Render a turn with the template, from after the generation prompt to its stop token."""
        dialect, template = self._renderer.grammar.dialect, self._renderer.template
        first = self.persistent_messages()
        base = messages(first, [message.content for message in first])
        base += earlier_messages(calls, dialect)
        before = template.render(base, TOOLS, prompted=False)
        begun = template.render(base, TOOLS, prompted=True)
        before = begun[: common_prefix_length(begun, before)]
        opening = begun.removeprefix(before)
        moves = dialect.moves_prompt

        def rendered(content: str) -> str:
            turn = turn_messages(content, calls, ["…"] * len(calls), dialect)
            text = template.render([*base, *turn], TOOLS, prompted=False)
            return text[self.start_of_turn(base, text) if moves else 0 :].removeprefix(before)

        # A nonce as content shows where the turn's opening ends and its own text starts.
        marked = rendered(_NONCE)
        start = self._common(opening, marked if _NONCE in marked else rendered(""))
        text = self._up_to_stop(rendered(content)[start:])
        if opened and self._renderer.reasoning(opened=True).closer not in text:
            text = self._reasoning() + text
        return text

    def start_of_turn(self, base: list[dict[str, object]], whole: str) -> int:
        """Return the offset of the first turn in a conversation, after all text shared with others.

        This is for templates that rewrite the prompt once a turn follows.
        """
        other: dict[str, object] = {"role": "assistant", "content": "\ue000"}
        text = self._renderer.template.render([*base, other], TOOLS, prompted=False)
        return common_prefix_length(whole, text)

    def _common(self, one: str, other: str) -> int:
        """Return the length of the common prefix of two texts, in whole tokens."""
        ids = self.encode(one)
        count = common_prefix_length(ids, self.encode(other))
        shared = self.text(ids[:count])
        return len(shared) if one.startswith(shared) else common_prefix_length(one, other)

    def _with_reasoning(self, text: str) -> str:
        """Prepend reasoning to a turn without any, if the vocabulary has tokens to mark it."""
        marks = self._renderer.reasoning(opened=False)
        has_marks = {marks.opener, marks.closer} <= set(self._renderer.controls.values())
        return (
            marks.opener + self._reasoning() + text
            if has_marks and marks.closer not in text
            else text
        )

    def _reasoning(self) -> str:
        family = self._renderer.grammar.family
        return _REASONING.rstrip("\n") + family.reasoning_end

    def persistent_messages(self) -> Sequence[Message]:
        """Return the first messages that the template still renders once a turn follows."""
        dialect = self._renderer.grammar.dialect
        keeps_system = dialect.has_system and not dialect.moves_system
        return [each for each in FIRST if keeps_system or each.role is not MessageRole.SYSTEM]

    def _up_to_stop(self, text: str) -> str:
        """Cut the text after its first stop token; append the family's own if it has none."""
        found = [text.index(stop) + len(stop) for stop in self._stops if stop in text]
        return text[: min(found)] if found else text + self._renderer.grammar.family.end


def _without_truncation(backend: Tokenizer) -> Tokenizer:
    """Return a tokenizer that neither truncates nor pads, even if its file asks for it."""
    definition = json.loads(backend.to_str())
    if definition.get("truncation") is None and definition.get("padding") is None:
        return backend
    return backend.from_str(json.dumps(definition | {"truncation": None, "padding": None}))
