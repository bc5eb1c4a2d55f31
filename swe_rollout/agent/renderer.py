"""Renderer: messages to token ids by the model's own chat template, and sampled ids to text.

The conversation is rendered once. After that only what is new is: `delta` takes the difference of
a small stand-in conversation without and with the new messages, so what was sampled is never
tokenised again. `agent.probe` has held the template against that rule.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from swe_rollout.agent.encoding import Encoding
from swe_rollout.agent.parsers.base import Reasoning
from swe_rollout.agent.probe import probe
from swe_rollout.agent.prompts import Role
from swe_rollout.agent.template import Bodies, ChatTemplate, messages
from swe_rollout.errors import PrerequisiteError
from swe_rollout.tool_format import ToolFormat
from swe_rollout.trajectory import TokenPath

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from swe_rollout.agent.parsers.base import SampledText
    from swe_rollout.agent.probe import Grammar
    from swe_rollout.agent.prompts import Message
    from swe_rollout.agent.template import Pretrained
    from swe_rollout.agent.tools.base import ToolSpec
    from swe_rollout.trajectory import ToolCall


@dataclass(frozen=True, slots=True)
class Rendered:
    """What the harness says, as ids; it ends in the beginning of the policy's turn."""

    ids: list[int]
    opens_reasoning: bool
    """Whether that beginning is already inside the reasoning."""


class Renderer:
    """The token path of one model. Shared by all episodes; holds no state of theirs."""

    def __init__(
        self,
        tokenizer: Pretrained,
        *,
        tool_format: ToolFormat | None = None,
        model_vocab: int | None = None,
    ) -> None:
        """Raises PrerequisiteError where vocabulary or template can't be used exactly.

        `tool_format`: the form of calls; none: what the template shows. `model_vocab`: the size of
        the model's vocabulary where it is known; it may be padded beyond the tokenizer's.
        """
        self._template = ChatTemplate(tokenizer)
        self._encoding = Encoding(tokenizer.backend_tokenizer)
        self._grammar = probe(self._template, self._encoding)
        self._tool_format = tool_format or _shown(self._grammar)
        self._vocab_size = model_vocab or len(tokenizer)
        end, eos = self._grammar.turn_end.token_id, tokenizer.eos_token_id
        self._stops = tuple(sorted({end} if eos is None else {end, eos}))

    @classmethod
    def load(cls, name_or_path: str, *, tool_format: ToolFormat | None = None) -> Renderer:
        """The renderer of a model: a folder with its tokenizer, or a name on the hub.

        The hub's local cache comes first, so that a known model needs no network.
        """
        try:
            files = _read(name_or_path)
        except (OSError, ValueError) as error:
            raise PrerequisiteError(
                f"there is no tokenizer at {name_or_path}",
                why=str(error).strip().partition("\n")[0],
                fix="set spec.policy.tokenizer to a folder with tokenizer.json and a chat "
                "template, or to a name on the hub that this machine can reach",
            ) from error
        return cls(files.tokenizer, tool_format=tool_format, model_vocab=files.model_vocab)

    @property
    def vocab_size(self) -> int:
        """What every id is below: the model's own size where it is known, else the tokenizer's."""
        return self._vocab_size

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """The ids that end a turn."""
        return self._stops

    def reasoning(self, *, opened: bool) -> Reasoning:
        """How the family marks its reasoning; `opened`: whether the prompt ended inside it."""
        return Reasoning(opened=opened)

    @property
    def tool_format(self) -> ToolFormat:
        """The form of the policy's calls."""
        return self._tool_format

    @property
    def path(self) -> TokenPath:
        """How tokens are made here, for the record."""
        return TokenPath("chatml", self._tool_format, self.fingerprint)

    @property
    def fingerprint(self) -> str:
        """16 hex characters over vocabulary and template, for the record."""
        text = f"{self._encoding.digest}\n{self._template.source}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def prompt(self, first: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendered:
        """The ids of the first request. A user message is a body: it can't forge control tokens."""
        users = [message.content for message in first if message.role is Role.USER]
        bodies = Bodies(users)
        stand_ins = iter(bodies.stand_ins)
        contents = [
            next(stand_ins) if message.role is Role.USER else message.content for message in first
        ]
        text = self._template.render(messages(first, contents), tools, prompted=True)
        return Rendered(self._encoding.encode(bodies.cut(text)), self._grammar.opens_thinking)

    def delta(
        self,
        last_id: int,
        calls: Sequence[ToolCall],
        *,
        results: Sequence[str],
        tools: Sequence[ToolSpec],
        open_reasoning: bool = False,
    ) -> Rendered:
        """The ids between a turn and the next: its boundary, the results of its calls, the prompt.

        `last_id` is the last one sampled; a turn that another id ended, or that was cut, gets its
        own end here, after the end of its reasoning if that is open.
        Results are bodies: they can't forge control tokens.
        """
        end = self._grammar.turn_end
        close = end.boundary if last_id == end.token_id else end.text + end.boundary
        if open_reasoning:
            close = f"\n{Reasoning().closer}\n\n{close}"
        bodies = Bodies(results)
        text = self._template.added(calls, bodies.stand_ins, tools)
        ids = self._encoding.encode([*bodies.cut(close + text)])
        return Rendered(ids, self._grammar.opens_thinking)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids for people, control tokens written out."""
        return self._encoding.decode(ids)

    def sampled(self, ids: Sequence[int]) -> SampledText:
        """One turn's ids as text for a parser, without the id that ended it."""
        ended = bool(ids) and ids[-1] in self._stops
        return self._encoding.sampled(ids[:-1] if ended else ids)


@dataclass(frozen=True, slots=True)
class _Files:
    tokenizer: Pretrained
    model_vocab: int | None


def _shown(grammar: Grammar) -> ToolFormat:
    if grammar.tool_format is None:
        raise PrerequisiteError(
            "the chat template shows calls in no form that is known here",
            fix=f"set spec.agent.toolFormat to one of {', '.join(ToolFormat)}",
        )
    return grammar.tool_format


def _read(name_or_path: str) -> _Files:
    try:
        return _read_files(name_or_path, cached_only=True)
    except (OSError, ValueError):
        # A folder that lacks something fails the same way again; a name may be on the hub.
        return _read_files(name_or_path, cached_only=False)


def _read_files(name_or_path: str, *, cached_only: bool) -> _Files:
    with _without_torch_advice():
        # It takes a second, and only the token path needs it.
        import transformers  # noqa: PLC0415
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        name_or_path, local_files_only=cached_only
    )
    config, _ = transformers.PretrainedConfig.get_config_dict(
        name_or_path, local_files_only=cached_only
    )
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerFast):
        raise ValueError(f"{type(tokenizer).__name__} has no tokenizer.json")  # noqa: TRY004
    # transformers types a conversation as text by text, but templates read calls and tools too.
    return _Files(cast("Pretrained", tokenizer), _vocab_of(config))


def _vocab_of(config: dict[str, object]) -> int | None:
    nested = config.get("text_config")
    size = config.get("vocab_size", nested.get("vocab_size") if isinstance(nested, dict) else None)
    return size if isinstance(size, int) else None


@contextmanager
def _without_torch_advice() -> Iterator[None]:
    """Keep transformers from telling stderr that there is no PyTorch: none is needed here."""

    def keep(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("PyTorch was not found")

    logger = logging.getLogger("transformers")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)
