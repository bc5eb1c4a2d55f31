"""Text from outside stays as it is, whatever steps a tokenizer has; or the model is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers

from swe_rollout.agent.encoding import Body, Encoding, Scaffold
from swe_rollout.errors import PrerequisiteError
from swe_rollout.testing.tiny import tokenizer_path
from unit.agent.test_encoding import EVERY, encoding_of, prepending, unigram

HARD = (
    "cafe\u0301 a\u0328\u0301 \u212b \ufb01",
    "\u1112\u1161\u11ab \ud55c",
    "a\r\nb\rc\x00\x1b\x7f\x85\u2028",
    "\u200b\u200d\ufeff\u00ad",
    "\u2581 \u2581\u2581a",
    "   lead and trail   ",
    "👩\u200d👩\u200d👧 🏳\ufe0f",
    "\ue000\U0010fffd\ufffe",
    "<0x0A><0xE2> MiXeD \\u0301",
)


def byte_level() -> Tokenizer:
    return Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json"))


NORMALIZERS = {
    "NFC": normalizers.NFC(),
    "NFKD": normalizers.NFKD(),
    "accents are stripped": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
    "lines end in one character": normalizers.Replace("\r\n", "\n"),
    "lower case": normalizers.Lowercase(),
    "ends are stripped": normalizers.Strip(),
    "spaces are joined": normalizers.Replace(Regex(" +"), " "),
    "BERT": normalizers.BertNormalizer(),
    "a mark before each text": normalizers.Prepend("▁"),
}


@pytest.mark.threat(point=12)
@pytest.mark.parametrize("kind", NORMALIZERS)
def test_a_normalizer_changes_no_body_of_a_byte_level_vocabulary(kind: str) -> None:
    tokenizer = byte_level()
    tokenizer.normalizer = NORMALIZERS[kind]
    encoding = Encoding(tokenizer)
    for text in HARD:
        assert encoding.decode(encoding.encode([Body(text)])) == text
    assert encoding.encode([Scaffold("cafe\u0301")]) == (
        tokenizer.encode("cafe\u0301", add_special_tokens=False).ids
    ), "the template's own text is encoded as the model was trained to read it"


@pytest.mark.threat(point=12)
@EVERY
def test_vocabularies_that_write_spaces_as_marks_keep_the_mark_itself(
    make: Callable[[], Tokenizer],
) -> None:
    encoding = encoding_of(make)
    for text in HARD:
        assert encoding.decode(encoding.encode([Body(text)])) == text


@pytest.mark.threat(point=12)
@settings(deadline=None)
@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    for encoding in _nfc_and_marks():
        assert encoding.decode(encoding.encode([Body(text)])) == text


@cache
def _nfc_and_marks() -> tuple[Encoding, ...]:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.NFC()
    return Encoding(tokenizer), encoding_of(prepending), encoding_of(unigram)


LOSSY = {
    "Whitespace": pre_tokenizers.Whitespace(),
    "BertPreTokenizer": pre_tokenizers.BertPreTokenizer(),
    "Punctuation": pre_tokenizers.Punctuation("removed"),
    "CharDelimiterSplit": pre_tokenizers.CharDelimiterSplit("x"),
}


@pytest.mark.threat(point=12)
@pytest.mark.parametrize("kind", LOSSY)
def test_a_step_that_loses_characters_is_refused_by_name(kind: str) -> None:
    tokenizer = byte_level()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [LOSSY[kind], pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    with pytest.raises(PrerequisiteError, match="can't be kept as it is") as raised:
        Encoding(tokenizer)
    assert kind in raised.value.why
    assert "comes back as" in raised.value.why


@pytest.mark.threat(point=12)
def test_a_decoder_that_loses_characters_is_refused_after_one_that_does_not() -> None:
    tokenizer = byte_level()
    Encoding(tokenizer)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip("x", 1, 0)])
    with pytest.raises(PrerequisiteError, match="can't be kept as it is"):
        Encoding(tokenizer)


@pytest.mark.threat(point=14)
def test_a_model_that_cuts_texts_at_random_is_refused() -> None:
    definition = json.loads(byte_level().to_str())
    definition["model"]["dropout"] = 0.1
    with pytest.raises(PrerequisiteError, match="not the same each time") as raised:
        Encoding(Tokenizer.from_str(json.dumps(definition)))
    assert "dropout" in raised.value.fix
