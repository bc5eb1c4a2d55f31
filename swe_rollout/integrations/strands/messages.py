"""Messages of Strands as values: what is new since the policy's last turn, as text.

Strands' messages are dicts; they are read here and nowhere else. A block that can't become text,
such as an image, is refused: an engine expands it into its own tokens, and decodes and retokenises
everything around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from swe_rollout.agent.tools.base import encodable
from swe_rollout.integrations.strands.exceptions import HistoryError, UnsupportedContentError

StrandsMessage: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class NewMessages:
    """The messages after the policy's last turn, or before its first."""

    results: Mapping[str, str] = field(default_factory=dict)
    """The results of calls by Strands' id of the call."""
    texts: tuple[str, ...] = ()
    """The user's messages, in order."""


@dataclass(frozen=True, slots=True)
class LastTurn:
    """The policy's last turn as the agent received it, to find it among the agent's messages."""

    ids: tuple[str, ...] = ()
    """The ids of its tool uses, which are unique."""
    text: str = ""
    index: int = 0
    """Its index among the messages, unless an earlier one has been dropped since."""


def first_messages(messages: Sequence[StrandsMessage]) -> NewMessages:
    """Read the messages before the first turn. Raises HistoryError for turns of another model."""
    if any(message.get("role") == "assistant" for message in messages):
        raise HistoryError(
            "the conversation begins with turns that this model has not sampled",
            why="their tokens are not known, and tokenising their text would invent them",
            fix="start with user messages alone; examples belong into the system prompt",
        )
    return _read(messages)


def new_messages(messages: Sequence[StrandsMessage], last: LastTurn) -> NewMessages:
    """Return what follows the policy's last turn.

    Earlier messages may be missing, since a conversation manager drops them: the policy has read
    them. Raises HistoryError if that turn is not the assistant's last, or nothing is new.
    """
    at = next(
        (i for i in range(len(messages) - 1, -1, -1) if messages[i].get("role") == "assistant"),
        None,
    )
    if at is None or not _is_turn(messages[at], last, moved=at != last.index) or at > last.index:
        raise HistoryError(
            "the messages don't continue the policy's last turn",
            why="it was discarded, replaced, or another turn was put behind it; what was sampled "
            "can't be taken back",
            fix="call reset() before another conversation, and don't let hooks write for the model",
        )
    if at + 1 == len(messages):
        raise HistoryError(
            "there is nothing new to answer",
            why="the policy's own turn is the last message",
            fix="give the agent a prompt",
        )
    return _read(messages[at + 1 :])


def _is_turn(message: StrandsMessage, last: LastTurn, *, moved: bool) -> bool:
    uses = tuple(
        str(use.get("toolUseId")) for use in _blocks(message, "toolUse") if isinstance(use, dict)
    )
    if uses != last.ids:
        return False
    # A hook may have edited a turn's text; without ids, only its place or its text identifies it.
    return bool(uses) or not moved or _spoken(message) == last.text.strip()


def _spoken(message: StrandsMessage) -> str:
    return "".join(str(text) for text in _blocks(message, "text")).strip()


def _read(messages: Iterable[StrandsMessage]) -> NewMessages:
    results: dict[str, str] = {}
    texts: list[str] = []
    for message in messages:
        said: list[str] = []
        for block in _content(message):
            match block:
                case {"toolResult": {"toolUseId": str(use), "content": list(content)}}:
                    results[use] = text_of(content)
                case _:
                    said += _text(block)
        if said:
            texts.append("\n".join(said))
    return NewMessages(results, tuple(texts))


def text_of(blocks: Iterable[object]) -> str:
    """Return the text of all blocks, each on its own lines; JSON is written out."""
    return "\n".join(text for block in blocks for text in _text(block))


def _text(block: object) -> Iterator[str]:
    """Yield the text of a block, if any; raises UnsupportedContentError for other content."""
    match block:
        case {"text": str(text)} | {"guardContent": {"text": {"text": str(text)}}}:
            yield encodable(text)
        case {"json": value}:
            yield encodable(json.dumps(value, ensure_ascii=False))
        case {"cachePoint": _}:
            return
        case dict():
            kind = next(iter(block), "nothing")
            raise UnsupportedContentError(
                f"a message holds content of the kind {kind!r}",
                why="the engine would tokenise the whole prompt again around it, and the tokens "
                "that are trained would not be the ones that were read",
                fix="describe it in text; models with images are not supported here",
            )
        case _:
            raise UnsupportedContentError("a message holds content that is no block of Strands'")


def _content(message: StrandsMessage) -> Sequence[object]:
    content = message.get("content")
    return content if isinstance(content, list) else ()


def _blocks(message: StrandsMessage, key: str) -> Iterator[object]:
    for block in _content(message):
        if isinstance(block, dict) and key in block:
            yield block[key]
