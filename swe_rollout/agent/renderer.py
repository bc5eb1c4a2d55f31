"""Renderer: turn messages into token ids with the model's chat template, and sampled ids into text.

The conversation is rendered once, and after that only new messages: `delta` is the difference
between a small stand-in conversation without and with them, so sampled text is never tokenised
again. `agent.template_probe` has checked that the template allows this.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Final

from swe_rollout.agent.call_text import CALL_TEXTS, describe_tools, stands_in_words
from swe_rollout.agent.delta import DeltaTemplate, StandIns
from swe_rollout.agent.dialect import id_of, messages, name_of
from swe_rollout.agent.encoding import Body, Encoding, Scaffold
from swe_rollout.agent.history import Exchange, history
from swe_rollout.agent.model_files import read_model_files
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Reasoning, SampledText
from swe_rollout.agent.prompts import Message, MessageRole, with_system
from swe_rollout.agent.template import ChatTemplate, Pretrained
from swe_rollout.agent.template_input import DEFAULT_DAY
from swe_rollout.agent.template_probe import opens_reasoning, probe
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.agent.turn_probe import MessageProbe
from swe_rollout.errors import InternalError, PrerequisiteError
from swe_rollout.huggingface import as_prerequisite_error
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.trajectory import TokenPath
from swe_rollout.types.turn import ToolCall


@dataclass(frozen=True, slots=True)
class Rendered:
    """Text of the harness as ids, which ends with the start of the policy's turn."""

    ids: list[int]
    opens_reasoning: bool
    """Whether the policy's turn starts inside its reasoning."""


class Renderer:
    """The token path of one model, shared by all episodes; it holds no state of theirs."""

    def __init__(
        self,
        tokenizer: Pretrained,
        *,
        tool_format: str | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
        model_vocab: int | None = None,
        model_ends: Iterable[int] = (),
        template_day: date = DEFAULT_DAY,
    ) -> None:
        """Raises PrerequisiteError if the vocabulary or template can't be used exactly.

        `tool_format` is the format of calls, built-in or `module:attr`; the default is the one that
        the template writes. `chat_template_kwargs` are variables of the template. `model_vocab` is
        the size of the model's vocabulary if known, which may be padded beyond the tokenizer's.
        `model_ends` are further ids at which an engine stops, from the model's configuration.
        `template_day` is the date that the template sees.
        """
        self.tokenizer = tokenizer
        """The original tokenizer, for checks that bypass this class."""
        template = ChatTemplate(tokenizer, chat_template_kwargs, day=template_day)
        self.template = template.without_tools() if stands_in_words(tool_format) else template
        self._encoding = Encoding(tokenizer.backend_tokenizer)
        self.grammar = probe(self.template, self._encoding, tool_format)
        """The family and the other results of probing the template."""
        self.tool_format = self.grammar.tool_format
        """The name of the format of the policy's calls."""
        self.parser = parser_for(self.tool_format)
        """Reads the policy's calls; stateless."""
        self.vocab_size = model_vocab or len(tokenizer)
        """A bound above every id: the model's vocabulary size if known, else the tokenizer's."""
        eos = tokenizer.eos_token_id
        self.stop_token_ids = tuple(
            sorted({*self.grammar.ends, *model_ends, *(() if eos is None else (eos,))})
        )
        self._messages = MessageProbe(self.template, self._encoding, self.grammar.dialect)
        marks = self.grammar.family.reasoning
        self._reasoning = tuple(replace(marks, opened=opened) for opened in (False, True))
        self._delta = DeltaTemplate(self.template, self.grammar.dialect)
        self._deltas: dict[tuple[object, ...], list[str]] = {}

    @classmethod
    def load(
        cls,
        name_or_path: str,
        *,
        tool_format: str | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
        template_day: date = DEFAULT_DAY,
    ) -> Renderer:
        """Load the renderer of a model from a folder with its tokenizer, or by its name on the hub.

        The hub's local cache is tried first, so that a cached model needs no network.
        """
        with as_prerequisite_error(f"there is no tokenizer at {name_or_path}", fix=_WHERE):
            files = read_model_files(name_or_path)
        with as_prerequisite_error(f"the tokenizer at {name_or_path} can't be used", fix=_WHERE):
            return cls(
                files.tokenizer,
                tool_format=tool_format,
                chat_template_kwargs=chat_template_kwargs,
                model_vocab=files.model_vocab,
                model_ends=files.model_ends,
                template_day=template_day,
            )

    @property
    def controls(self) -> Mapping[int, str]:
        """The control tokens of the vocabulary, which text from outside can't forge."""
        return self._encoding.controls

    @property
    def special_ids(self) -> frozenset[int]:
        """The control tokens that structure the conversation, such as its ends of turns."""
        return self._encoding.special_ids

    def reasoning(self, *, opened: bool) -> Reasoning:
        """Return the marks of reasoning; `opened` says whether the prompt ended inside it."""
        return self._reasoning[opened]

    @property
    def path(self) -> TokenPath:
        """How this renderer makes tokens, for the record."""
        return TokenPath(
            self.grammar.family.name,
            self.tool_format,
            self.fingerprint,
            template_drops_reasoning=self.grammar.drops_reasoning,
            ends=tuple(map(self._text_of, self.stop_token_ids)),
        )

    @property
    def fingerprint(self) -> str:
        """A digest of vocabulary and template, 16 hex characters, for the record."""
        text = f"{self._encoding.digest}\n{self.template.source}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def prompt(self, first: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendered:
        """Render the first request. A user message is a body: it can't forge control tokens."""
        if not self.grammar.dialect.has_system:
            _refuse_system(first)
        told = "" if self.grammar.dialect.writes_tools else self._tools_text(tools)
        if told and self.grammar.dialect.has_system:
            first, told = with_system(first, told), ""
        users = [message.content for message in first if message.role is MessageRole.USER]
        stand_ins = StandIns(len(users))
        # Without a system message, the first user message starts with the tools.
        told = told.lstrip("\n") + "\n\n" if told else ""
        shown = (f"{'' if index else told}{each}" for index, each in enumerate(stand_ins.texts))
        contents = [
            next(shown) if message.role is MessageRole.USER else message.content
            for message in first
        ]
        text = self.template.render(messages(first, contents), tools, prompted=True)
        pieces = stand_ins.pieces(text)
        bodies = map(self.grammar.dialect.user.apply, users)
        return Rendered(self._encoding.encode(_joined(pieces, bodies)), self._opens(pieces[-1]))

    def history(
        self, first: Sequence[Message], exchanges: Sequence[Exchange], tools: Sequence[ToolSpec]
    ) -> Rendered:
        """Render a conversation with turns that were not sampled here. All of it is body.

        Raises UnfitHistoryError if the template can't show it.
        """
        told = "" if self.grammar.dialect.writes_tools else self._tools_text(tools)
        parts = history(
            first,
            exchanges,
            tools,
            self.template,
            self.grammar.dialect,
            controls=self.controls.values(),
            told=told,
        )
        return Rendered(self._encoding.encode(parts), self._opens(parts[-1].text))

    def delta(
        self,
        last_id: int,
        calls: Sequence[ToolCall],
        *,
        results: Sequence[str],
        tools: Sequence[ToolSpec],
        open_reasoning: bool = False,
        messages: Sequence[str] = (),
    ) -> Rendered:
        """Render the text between two turns: the boundary, results, messages, the prompt.

        `last_id` is the last sampled id. The token that ended the turn is kept, and not repeated if
        it is also the next header. A turn that ended with another id, or was cut, is closed here,
        after the end of its reasoning if that is open. Results and the user's `messages` after them
        are bodies: they can't forge control tokens. Raises InternalError for messages that the
        template can't append exactly.
        """
        grammar = self.grammar
        if messages:
            self.check_message(after_calls=bool(calls))
        pieces = self._pieces(calls[: len(results)], tools, len(messages))
        first = self._close(last_id, open_reasoning=open_reasoning)
        head = pieces[0]
        if grammar.family.end_is_header and last_id in grammar.ends:
            head = head.removeprefix(self._encoding.controls[last_id])
        parts = _joined([first + head, *pieces[1:]], grammar.dialect.bodies(results, messages))
        return Rendered(self._encoding.encode(parts, after=last_id), self._opens(pieces[-1]))

    def message_refusal(self, *, after_calls: bool) -> str:
        """Return why a user message can't be appended to the log exactly; '' if it can.

        With `after_calls` it follows results of calls, otherwise a turn without calls.
        """
        return self._messages.refusal(after_calls=after_calls)

    def check_message(self, *, after_calls: bool) -> None:
        """Raise InternalError if a user message can't be appended exactly."""
        if why := self.message_refusal(after_calls=after_calls):
            raise InternalError(
                "this model's chat template can't append a user message exactly",
                why=why,
                fix="use an agent that writes no messages between turns, or another template",
                retryable=False,
            )

    def _tools_text(self, tools: Sequence[ToolSpec]) -> str:
        """Describe the tools as the family's vendor does, if the template does not."""
        if not tools:
            return ""
        write = self.grammar.family.tools_text
        if write is None or self.tool_format not in VENDOR_FORMATS:
            return describe_tools(tools, self.grammar.example)
        return write(tools).replace("{example}", written_example(self.tool_format))

    def _close(self, last_id: int, *, open_reasoning: bool) -> str:
        """Return the missing end of the sampled turn, and the template's text after it."""
        grammar, family = self.grammar, self.grammar.family
        if last_id == grammar.end_id:
            return family.after
        if last_id in grammar.ends:
            return ""
        cut = family.end + family.after if family.cut_end is None else family.cut_end
        return (family.reasoning_end if open_reasoning else "") + cut

    def _pieces(
        self, calls: Sequence[ToolCall], tools: Sequence[ToolSpec], messages: int
    ) -> list[str]:
        """Return the template's text around results and messages.

        It depends only on the names and ids of the calls and on the number of messages.
        """
        dialect = self.grammar.dialect
        named = [(name_of(call), id_of(call, index, dialect)) for index, call in enumerate(calls)]
        key = (tuple(named), tuple(tool.name for tool in tools), messages)
        found = self._deltas.get(key)
        if found is None:
            # Another thread may fill or empty the cache meanwhile.
            if len(self._deltas) >= _MAX_CACHED_DELTAS:
                self._deltas.clear()
            found = self._deltas[key] = self._delta.pieces(calls, tools, messages=messages)
        return found

    def _opens(self, begun: str) -> bool:
        return opens_reasoning(begun, self.grammar.family.reasoning)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids for people, including control tokens."""
        return self._encoding.decode(ids)

    def is_text(self, ids: Sequence[int]) -> bool:
        """Return whether the bytes of ids are UTF-8, so that decoding replaces none."""
        return self._encoding.is_text(ids)

    def sampled(self, ids: Sequence[int]) -> SampledText:
        """Return one turn's ids as text for a parser, without the id that ended the turn."""
        if not ids or ids[-1] not in self.stop_token_ids:
            return self._encoding.sampled(ids)
        return self._encoding.sampled(ids[:-1], ended_by=self._text_of(ids[-1]))

    def _text_of(self, token_id: int) -> str:
        return self.controls.get(token_id) or self._encoding.decode([token_id])


_WHERE = (
    "set spec.policy.tokenizer to a folder with tokenizer.json and a chat template, or to a name "
    "on the hub that this machine can reach"
)
_MAX_CACHED_DELTAS = 1024
"""Bounds the cache: ids that count up, as Kimi's do, add an entry in each turn."""


VENDOR_FORMATS: Final = (
    ToolFormat.DEEPSEEK_V3,
    ToolFormat.DEEPSEEK_V31,
    ToolFormat.DEEPSEEK_V32,
)
"""Call formats that a vendor's own description of tools already shows."""


def written_example(tool_format: str) -> str:
    """Return an example call for the system message, if the template writes none."""
    written = CALL_TEXTS.get(tool_format, CALL_TEXTS[ToolFormat.DEEPSEEK_V3])
    call = written.each.format(name="tool_call_name", json="tool_call_arguments")
    return f"{written.head}{call}{written.tail}"


def _joined(pieces: Sequence[str], bodies: Iterable[str]) -> list[Scaffold | Body]:
    """Return the pieces of the template's text with a body between each two."""
    parts: list[Scaffold | Body] = [Scaffold(pieces[0])]
    for body, piece in zip(bodies, pieces[1:], strict=True):
        parts += [Body(body), Scaffold(piece)]
    return parts


def _refuse_system(first: Sequence[Message]) -> None:
    if any(message.role is MessageRole.SYSTEM and message.content for message in first):
        raise PrerequisiteError(
            "this model's chat template takes no system message",
            fix="set spec.agent.systemPrompt to '' and say all in spec.agent.instancePrompt",
        )
