"""Text to ids and back, in two ways: what the template writes, and what nobody may forge with.

Scaffold is the chat template's own text: its control tokens become single ids. A body is text from
outside (an issue, a tool's output): it is encoded by a copy of the vocabulary that has no control
tokens, so `<|im_end|>` in it is just characters. Used by `agent.renderer`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Protocol, Self

from swe_rollout.agent.parsers.base import Mark, SampledText
from swe_rollout.errors import PrerequisiteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class _Encoded(Protocol):
    @property
    def ids(self) -> list[int]: ...


class Backend(Protocol):
    """What is used of a `tokenizers.Tokenizer`."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> _Encoded:
        """Ids of a text."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Text of ids."""
        ...

    def to_str(self) -> str:
        """Its whole definition as JSON."""
        ...

    @classmethod
    def from_str(cls, json: str) -> Self:
        """The inverse of `to_str`."""
        ...


@dataclass(frozen=True, slots=True)
class Scaffold:
    """Text the chat template wrote."""

    text: str


@dataclass(frozen=True, slots=True)
class Body:
    """Text from outside, in which nothing is a control token."""

    text: str


class Encoding:
    """The vocabulary of a model, for scaffold and for bodies."""

    def __init__(self, backend: Backend) -> None:
        """Raises PrerequisiteError when bodies can't be kept from forging control tokens."""
        definition = json.loads(backend.to_str())
        # A tokenizer's file may ask to cut or to pad what it encodes.
        definition.update(truncation=None, padding=None)
        self._scaffold = backend.from_str(json.dumps(definition))
        self.controls: dict[int, str] = {
            added["id"]: added["content"] for added in definition["added_tokens"]
        }
        self._body = backend.from_str(json.dumps(definition | {"added_tokens": []}))
        self.atomic = frozenset(self.controls.values())
        self.digest = hashlib.sha256(json.dumps(definition).encode()).hexdigest()
        self._refuse_forgeable()

    def encode(self, parts: Iterable[Scaffold | Body]) -> list[int]:
        """Ids of the parts, each encoded by itself; nothing is added at either end."""
        ids: list[int] = []
        for part in parts:
            backend = self._body if isinstance(part, Body) else self._scaffold
            # Half a surrogate pair, which a dataset row may hold, is no text to a tokenizer.
            text = part.text.encode(errors="replace").decode()
            ids += backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens written out."""
        return self._scaffold.decode(list(ids), skip_special_tokens=False)

    def id_of(self, control: str) -> int | None:
        """The id of a control token; none when the vocabulary has no such token."""
        return next((i for i, text in self.controls.items() if text == control), None)

    def sampled(self, ids: Sequence[int]) -> SampledText:
        """The text of ids with the places of the control tokens among them."""
        text, marks = "", []
        for is_control, run in groupby(ids, key=self.controls.__contains__):
            # Characters may be spread over several ids, so a run between controls is decoded whole.
            for piece in ([i] for i in run) if is_control else [list(run)]:
                if is_control:
                    marks.append(Mark(len(text), self.controls[piece[0]]))
                    text += self.controls[piece[0]]
                else:
                    text += self.decode(piece)
        return SampledText(text, tuple(marks), self.atomic)

    def _refuse_forgeable(self) -> None:
        for control in self.controls.values():
            if not self.controls.keys().isdisjoint(self.encode([Body(control)])):
                raise PrerequisiteError(
                    f"text from outside could forge the control token {control!r}",
                    why="this tokenizer has it in its base vocabulary too",
                    fix="use a model whose control tokens are added tokens",
                )
