"""Encode text to ids and back: the chat template's own text, and text that must not forge control
tokens.

Scaffold is the template's own text; its control tokens become single ids. A body is text from
outside (an issue, a tool's output), encoded with a copy of the vocabulary that has no control
tokens, so that `<|im_end|>` in it is just characters. Used by `agent.renderer`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from swe_rollout.agent.parsers.base import Mark, SampledText
from swe_rollout.agent.token_offsets import TokenBytes, TokenOffsets, TokenRun
from swe_rollout.agent.vocabulary import (
    bytes_of_space_mark,
    refuse_lossy,
    refuse_random,
    split_for_bytes,
    unprefixed,
    without_controls,
)
from swe_rollout.errors import PrerequisiteError

if TYPE_CHECKING:  # commands without a model start in less time
    from tokenizers import Tokenizer

PARALLELISM: Final = "TOKENIZERS_PARALLELISM"
"""The library's variable. With `false`, texts are encoded here, in a seventh less time."""
_FORGERIES = ("{}", "{}{}", "x{}y", " {} ", "\n{}\n", "<{}>")
_MAX_CACHED_CHARACTERS = 2048
_MAX_CACHED_SCAFFOLDS = 4096
_NO_MODEL: Final = {"type": "BPE", "vocab": {}, "merges": []}
_ORDINARY = -1
"""Stands for every id that is not a control token."""
_CHECKED: Final[set[str]] = set()
"""Digests of definitions, and of what they mean for bodies, that this process has checked: checks
take most of the load time, and a local run loads the same model several times."""


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

    def __init__(self, backend: Tokenizer) -> None:
        """Raises PrerequisiteError if bodies can't be kept from forging control tokens."""
        definition = json.loads(backend.to_str())
        # A tokenizer's file may enable truncation or padding.
        definition.update(truncation=None, padding=None)
        refuse_random(definition)
        self.controls: dict[int, str] = {
            added["id"]: added["content"] for added in definition["added_tokens"]
        }
        self.special_ids = frozenset(
            added["id"] for added in definition["added_tokens"] if added["special"]
        )
        """The control tokens that structure the conversation, such as its ends of turns."""
        self.atomic = frozenset(self.controls.values())
        self._scaffold = _sharing(backend, definition)
        self._inner = _sharing(backend, unprefixed(definition))
        bodies = without_controls(definition, self.atomic)
        self._bytes = TokenBytes(self.decode, backend.id_to_token)
        self._space_mark = bytes_of_space_mark(definition)
        self._adds_space = _ids(self._scaffold, "a") != _ids(self._inner, "a")
        self._scaffold_ids: dict[tuple[str, int | None], list[int]] = {}
        self.digest = _digest(definition)
        if self.digest not in _CHECKED:
            # A vocabulary caches the first words that it encodes and no later ones: not the odd
            # ones of the checks.
            self._body = _of_its_own(backend, bodies)
            self._refuse_forgeable()
            # No id of a body is a control token's: models that differ only in these lose the same.
            plain = _digest([bodies, self._space_mark])
            if plain not in _CHECKED:
                refuse_lossy(lambda text: self.decode(self._body_ids(text)), definition)
            _CHECKED.update((self.digest, plain))
        has_controls = bodies["model"] != definition["model"]
        self._body = (_of_its_own if has_controls else _sharing)(backend, bodies)

    def encode(self, parts: Iterable[Scaffold | Body], *, after: int | None = None) -> list[int]:
        """Encode each part separately, adding nothing at either end.

        `after` is the id before them; None if they start a conversation.
        """
        ids: list[int] = []
        for part in parts:
            if isinstance(part, Body):
                ids += self._body_ids(part.text)
            else:
                ids += self._scaffold_ids_of(part.text, after=ids[-1] if ids else after)
        return ids

    def _body_ids(self, text: str) -> list[int]:
        """Encode a body; the vocabulary's space mark in it is encoded as bytes."""
        if not self._space_mark:
            return _ids(self._body, text)
        first, *others = (
            [i for piece in part for i in _ids(self._body, piece)] for part in split_for_bytes(text)
        )
        return [*first, *(i for part in others for i in (*self._space_mark, *part))]

    def _scaffold_ids_of(self, text: str, *, after: int | None) -> list[int]:
        """Encode scaffold; short pieces recur and are cached."""
        if after is not None and after not in self.controls:
            after = _ORDINARY
        found = self._scaffold_ids.get((text, after))
        if found is None:
            found = self._scaffolded(text, after)
            if (
                len(text) < _MAX_CACHED_CHARACTERS
                and len(self._scaffold_ids) < _MAX_CACHED_SCAFFOLDS
            ):
                self._scaffold_ids[text, after] = found
        return found

    def _scaffolded(self, text: str, after: int | None) -> list[int]:
        """Encode scaffold without adding a space before a piece that follows a body."""
        if after is None:
            return _ids(self._scaffold, text)
        if after in self.controls:
            # How a control token changes what follows it depends on the tokenizer.
            ids = _ids(self._scaffold, self.controls[after] + text)
            if ids[:1] == [after]:
                return ids[1:]
        if not self._adds_space:
            return _ids(self._scaffold, text)
        starts = (text.find(control) for control in self.atomic)
        first = min((start for start in starts if start >= 0), default=len(text))
        head, rest = text[:first], text[first:]
        return [
            *(_ids(self._inner, head) if head else []),
            *(_ids(self._scaffold, rest) if rest else []),
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, including control tokens and a leading space."""
        return self._inner.decode(list(ids), skip_special_tokens=False)

    def is_text(self, ids: Sequence[int]) -> bool:
        """Return whether the bytes of ids are UTF-8, so that decoding replaces none."""
        try:
            b"".join(self._bytes.of(ids)).decode()
        except UnicodeDecodeError:
            return False
        return True

    def id_of(self, control: str) -> int | None:
        """Return the id of a control token; None if the vocabulary has no such token."""
        return next((i for i, text in self.controls.items() if text == control), None)

    def sampled(self, ids: Sequence[int], *, ended_by: str = "") -> SampledText:
        """Return the text of ids, with the offsets of the control tokens among them.

        `ended_by` is the token after them, which ended the turn.
        """
        marks, runs = list[Mark](), list[TokenRun]()
        offset = start = 0
        for is_control, group in groupby(ids, key=self.controls.__contains__):
            # A character may span several ids, so a run between control tokens is decoded whole.
            run = tuple(group)
            written = [self.controls[i] for i in run] if is_control else [self.decode(run)]
            runs.append(TokenRun(offset, start, run, "".join(written)))
            for token in written:
                if is_control:
                    marks.append(Mark(offset, token))
                offset += len(token)
            start += len(run)
        text = "".join(run.text for run in runs)
        places = TokenOffsets(runs, self._ends)
        return SampledText(text, tuple(marks), self.atomic, places, ended_by)

    def _ends(self, run: TokenRun) -> Sequence[int] | None:
        """Return how many characters end with each id of a run; None if that is not known."""
        if run.ids[0] in self.controls:
            return list(accumulate(len(self.controls[i]) for i in run.ids))
        return self._bytes.ends(run.ids, run.text)

    def _refuse_forgeable(self) -> None:
        for control in self.controls.values():
            for form in _FORGERIES:
                text = form.replace("{}", control)
                ids = self.encode([Body(text)])
                if not self.controls.keys().isdisjoint(ids):
                    raise PrerequisiteError(
                        f"text from outside could forge the control token {control!r}",
                        why="this tokenizer reaches it without its added tokens too",
                        fix="use a model whose control tokens are added tokens",
                    )


def _digest(definition: object) -> str:
    return hashlib.sha256(json.dumps(definition).encode()).hexdigest()


def _sharing(backend: Tokenizer, definition: dict[str, object]) -> Tokenizer:
    """Return a tokenizer of this definition that shares the model with `backend`.

    A model of 150,000 tokens takes 30 MB, and a copy that is used in turn with others is cold.
    """
    steps = definition | {"model": _NO_MODEL, "added_tokens": []}
    made = backend.from_str(json.dumps(steps))
    made.model = backend.model
    if definition["added_tokens"]:
        added = backend.get_added_tokens_decoder()
        in_order = (added[each] for each in sorted(added))
        for special, run in groupby(in_order, key=attrgetter("special")):
            (made.add_special_tokens if special else made.add_tokens)(list(run))
        if made.get_added_tokens_decoder() != added:
            return _of_its_own(backend, definition)
    return made


def _of_its_own(backend: Tokenizer, definition: dict[str, object]) -> Tokenizer:
    """Return a tokenizer of this definition with a model of its own."""
    try:
        return backend.from_str(json.dumps(definition))
    except ValueError as error:
        raise PrerequisiteError(
            "text from outside can't be kept apart from control tokens",
            why=f"the vocabulary without them can't be used: {error}",
            fix="use a model whose control tokens are added tokens",
        ) from error


def _ids(backend: Tokenizer, text: str) -> list[int]:
    # A dataset row may contain a lone surrogate, which tokenizers reject.
    plain = text.encode(errors="replace").decode()
    if os.environ.get(PARALLELISM) == "false":
        return backend.encode_batch_fast([plain], add_special_tokens=False)[0].ids
    # It hands each batch to threads of its own, which wait for a core where all are busy.
    return backend.encode(plain, add_special_tokens=False).ids
