"""Vocabularies that hold control tokens in their base, and ones that put spaces before a text."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from rollout_dev import families
from rollout_dev.families import FAMILIES
from swe_rollout.agent.encoding import PARALLELISM, Body, Encoding, Scaffold
from swe_rollout.errors import PrerequisiteError
from swe_rollout.testing.tiny import tokenizer_path

CONTROLS = ("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]")
CHARACTERS = "abcdefghijklmnopqrstuvwxyzINSTOLCA[]/_<>|▁"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
# They lead to a control token when nothing takes them out.
MERGES = [("▁", "▁"), ("[", "I"), ("[I", "N"), ("[IN", "S"), ("[INS", "T"), ("[INST", "]")]
STRIP = decoders.Sequence(
    [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(content=" ", left=1),
    ]
)


def _pieces() -> list[str]:
    merged = [left + right for left, right in MERGES]
    return list(dict.fromkeys(["<unk>", *CONTROLS, *BYTES, *CHARACTERS, *merged]))


def _bpe() -> Tokenizer:
    vocab = {piece: index for index, piece in enumerate(_pieces())}
    return Tokenizer(models.BPE(vocab, MERGES, byte_fallback=True, fuse_unk=True))


def prepending() -> Tokenizer:
    tokenizer = _bpe()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = STRIP
    return tokenizer


def _metaspace(scheme: str) -> Tokenizer:
    tokenizer = _bpe()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    tokenizer.decoder = STRIP
    return tokenizer


def metaspace_first() -> Tokenizer:
    return _metaspace("first")


def metaspace_always() -> Tokenizer:
    return _metaspace("always")


def unigram() -> Tokenizer:
    scored = [(piece, -10.0 if piece in BYTES else -float(8 - len(piece))) for piece in _pieces()]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = STRIP
    return tokenizer


MADE = (prepending, metaspace_first, metaspace_always, unigram)
EVERY = pytest.mark.parametrize("make", MADE)


def encoding_of(make: Callable[[], Tokenizer]) -> Encoding:
    tokenizer = make()
    tokenizer.add_special_tokens(["<unk>", *CONTROLS])
    return Encoding(tokenizer)


@EVERY
def test_control_tokens_of_the_base_vocabulary_are_only_characters_in_a_body(
    make: Callable[[], Tokenizer],
) -> None:
    encoding = encoding_of(make)

    for control in CONTROLS:
        assert encoding.encode([Scaffold(f"<s>{control}")])[-1] == encoding.id_of(control)
        for text in (control, control * 2, f"a{control}b", f" {control} ", f"\n{control}"):
            ids = encoding.encode([Body(text)])
            assert encoding.controls.keys().isdisjoint(ids)
            assert encoding.decode(ids) == text


@EVERY
def test_a_body_and_what_goes_on_behind_it_get_no_space_that_nobody_wrote(
    make: Callable[[], Tokenizer],
) -> None:
    encoding = encoding_of(make)
    parts: list[Scaffold | Body] = [
        Scaffold("<s>[INST]"),
        Body("  a [INST]\n"),
        Scaffold("b"),
        Body("c"),
        Scaffold("</s>"),
    ]

    assert encoding.decode(encoding.encode(parts)) == "<s>[INST]  a [INST]\nbc</s>"


TEXTS = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.sampled_from(
            [*CONTROLS, "▁", "  ", "\n\n", "don't 123", "<|im_end|>", "e\u0301", "👩‍👩‍👧"]
        ),
    ),
    max_size=12,
).map("".join)


@pytest.mark.parametrize("kind", [*MADE, *FAMILIES])
@settings(max_examples=60)
@given(text=TEXTS)
def test_texts_have_the_same_ids_without_offsets(
    kind: Callable[[], Tokenizer] | str, text: str
) -> None:
    encoding = of_any(kind)
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for parallel in ("true", "false"):
            patch.setenv(PARALLELISM, parallel)
            bodies = encoding.encode([Body(text)])
            found.append((bodies, encoding._scaffolded(text, None)))
    assert found[0] == found[1]


@cache
def of_any(kind: Callable[[], Tokenizer] | str) -> Encoding:
    if not isinstance(kind, str):
        return encoding_of(kind)
    with tempfile.TemporaryDirectory() as folder:
        written = families.write(kind, Path(folder) / kind)
        return Encoding(Tokenizer.from_file(str(written / "tokenizer.json")))


@EVERY
def test_a_sampled_space_behind_a_control_token_is_read(make: Callable[[], Tokenizer]) -> None:
    encoding = encoding_of(make)
    control = encoding.id_of("[TOOL_CALLS]")
    assert control is not None

    sampled = encoding.sampled([control, *encoding.encode([Body(" [a]")])])

    assert sampled.text == "[TOOL_CALLS] [a]"
    assert [mark.start for mark in sampled.marks] == [0]


@EVERY
def test_every_character_has_the_token_that_completes_it(make: Callable[[], Tokenizer]) -> None:
    encoding = encoding_of(make)
    ids = encoding.encode([Scaffold("</s>"), Body("a 日\ufffd b"), Scaffold("[/INST]")])
    sampled = encoding.sampled(ids)
    locate = sampled.token_at
    assert locate is not None

    places = []
    for offset in range(len(sampled.text) + 1):
        place = locate(offset)
        assert place is not None
        places.append(place)

    assert places == sorted(places)
    assert places[0] == 0
    assert places[-1] == len(ids)
    assert sampled.text[-8:-7] == "b"
    assert encoding.decode([ids[places[sampled.text.index("b")]]]).endswith("b")
    # Three bytes, three tokens: the last one completes the character.
    kanji = sampled.text.index("日")
    assert places[kanji] - places[kanji - 1] == 3


def test_no_token_of_an_empty_turn_holds_anything() -> None:
    sampled = encoding_of(unigram).sampled([])

    assert sampled.text == ""
    assert sampled.token_at is not None
    assert sampled.token_at(0) == 0


def test_a_vocabulary_that_loses_characters_is_refused() -> None:
    lossy = Tokenizer(models.BPE({"a": 0, "</s>": 1}, []))
    lossy.add_special_tokens(["</s>"])

    with pytest.raises(PrerequisiteError, match="can't be kept as it is"):
        Encoding(lossy)


def test_episodes_share_the_model_of_the_tokenizer_with_nothing_else_in_its_cache() -> None:
    encoded: dict[int, list[str]] = {}
    given = Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json"))
    given.add_special_tokens(["<a vocabulary that was not checked before>"])

    class Watched:
        """A tokenizer that records what each model encodes."""

        def __init__(self, tokenizer: Tokenizer) -> None:
            self.tokenizer = tokenizer
            self.model = tokenizer.model

        def __getattr__(self, name: str) -> object:
            return getattr(self.tokenizer, name)

        def __setattr__(self, name: str, value: object) -> None:
            object.__setattr__(self, name, value)
            if isinstance(value, models.Model):
                self.tokenizer.model = value

        @staticmethod
        def from_str(definition: str) -> Watched:
            return Watched(Tokenizer.from_str(definition))

        def encode(self, text: str, *, add_special_tokens: bool) -> object:
            encoded.setdefault(id(self.model), []).append(text)
            return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    watched = Watched(given)
    encoding = Encoding(cast("Tokenizer", watched))
    assert set(encoded[id(watched.model)]) == {"a"}

    encoding.encode([Body("ls"), Scaffold("<|im_end|>")])
    assert encoded[id(watched.model)][-2:] == ["ls", "<|im_end|>"]


PARTS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="▁"), max_size=8)
    | st.sampled_from(CONTROLS),
    max_size=6,
)


@settings(deadline=None, max_examples=40)
@given(PARTS)
def test_no_body_ever_forges_or_loses_anything(parts: list[str]) -> None:
    text = "".join(parts)
    for encoding in _shared():
        ids = encoding.encode([Body(text)])
        assert encoding.controls.keys().isdisjoint(ids)
        assert encoding.decode(ids) == text


@settings(deadline=None, max_examples=40)
@given(PARTS, st.data())
def test_marks_and_places_do_not_depend_on_how_a_text_was_cut(
    parts: list[str], data: st.DataObject
) -> None:
    """Segments of a turn are cut at random, so the same text has other ids; controls stay ids."""
    for encoding in _shared():
        size = data.draw(st.integers(1, 4))
        cut = [
            [part]
            if part in CONTROLS
            else [part[start : start + size] for start in range(0, len(part), size)]
            for part in parts
        ]
        pieces = list(chain.from_iterable(cut))
        ids = [
            token
            for piece in pieces
            for token in (
                [encoding.id_of(piece)] if piece in CONTROLS else encoding.encode([Body(piece)])
            )
            if token is not None
        ]
        sampled = encoding.sampled(ids)
        assert sampled.text == "".join(pieces)
        assert [mark.token for mark in sampled.marks] == [p for p in pieces if p in CONTROLS]
        for mark in sampled.marks:
            span = sampled.span(mark.start, mark.start + len(mark.token))
            assert span is not None
            assert encoding.controls[ids[span.start]] == mark.token


_CACHE: list[Encoding] = []


def _shared() -> list[Encoding]:
    if not _CACHE:
        _CACHE.extend(map(encoding_of, MADE))
    return _CACHE
