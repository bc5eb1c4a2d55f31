"""Text to ids and back, in two ways: what the template writes, and what nobody may forge with.

Scaffold is the chat template's own text: its control tokens become single ids. A body is text from
outside (an issue, a tool's output): it is encoded by a copy of the vocabulary that has no control
tokens, so `<|im_end|>` in it is just characters. Used by `agent.renderer`.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
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


_SHORT_SCAFFOLD = 2048
_SCAFFOLDS_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Scaffold:
    """Text the chat template wrote."""

    text: str


@dataclass(frozen=True, slots=True)
class Body:
    """Text from outside, in which nothing is a control token."""

    text: str


@dataclass(frozen=True, slots=True)
class _Run:
    """Ids between control tokens, or one of those: where they begin in the text and in the turn."""

    offset: int
    start: int
    ids: tuple[int, ...]


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
        self._scaffold_ids: dict[str, list[int]] = {}
        self.atomic = frozenset(self.controls.values())
        self.digest = hashlib.sha256(json.dumps(definition).encode()).hexdigest()
        self._refuse_forgeable()

    def encode(self, parts: Iterable[Scaffold | Body]) -> list[int]:
        """Ids of the parts, each encoded by itself; nothing is added at either end."""
        ids: list[int] = []
        for part in parts:
            ids += self._body_ids(part.text) if isinstance(part, Body) else self._known(part.text)
        return ids

    def _body_ids(self, text: str) -> list[int]:
        # Half a surrogate pair, which a dataset row may hold, is no text to a tokenizer.
        text = text.encode(errors="replace").decode()
        return self._body.encode(text, add_special_tokens=False).ids

    def _known(self, text: str) -> list[int]:
        """Ids of scaffold, which comes again and again while it is short."""
        found = self._scaffold_ids.get(text)
        if found is None:
            plain = text.encode(errors="replace").decode()
            found = self._scaffold.encode(plain, add_special_tokens=False).ids
            if len(text) < _SHORT_SCAFFOLD and len(self._scaffold_ids) < _SCAFFOLDS_KEPT:
                self._scaffold_ids[text] = found
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens written out."""
        return self._scaffold.decode(list(ids), skip_special_tokens=False)

    def id_of(self, control: str) -> int | None:
        """The id of a control token; none when the vocabulary has no such token."""
        return next((i for i, text in self.controls.items() if text == control), None)

    def sampled(self, ids: Sequence[int]) -> SampledText:
        """The text of ids with the places of the control tokens among them."""
        text, marks, runs = "", [], []
        start = 0
        for is_control, group in groupby(ids, key=self.controls.__contains__):
            # Characters may be spread over several ids, so a run between controls is decoded whole.
            run = list(group)
            for piece in [[i] for i in run] if is_control else [run]:
                runs.append(_Run(len(text), start, tuple(piece)))
                if is_control:
                    marks.append(Mark(len(text), self.controls[piece[0]]))
                    text += self.controls[piece[0]]
                else:
                    text += self.decode(piece)
                start += len(piece)
        return SampledText(text, tuple(marks), self.atomic, partial(self._token_at, runs))

    def _token_at(self, runs: Sequence[_Run], offset: int) -> int:
        """The token that completes the character at an offset of the text that `runs` make."""
        if not runs:
            return 0
        run = runs[bisect_right(runs, offset, key=lambda each: each.offset) - 1]
        if run.ids[0] in self.controls:
            return run.start
        inside = offset - run.offset
        size = len(run.ids)
        # A prefix of ids decodes to a prefix of the text, but for a character it ends within.
        found = bisect_right(range(1, size), inside, key=lambda n: self._whole(run.ids[:n]))
        return run.start + min(found, size - 1)

    def _whole(self, ids: Sequence[int]) -> int:
        return len(self.decode(ids).rstrip("\ufffd"))

    def _refuse_forgeable(self) -> None:
        for control in self.controls.values():
            if not self.controls.keys().isdisjoint(self.encode([Body(control)])):
                raise PrerequisiteError(
                    f"text from outside could forge the control token {control!r}",
                    why="this tokenizer has it in its base vocabulary too",
                    fix="use a model whose control tokens are added tokens",
                )
