"""Texts of single tokens, and where their vocabulary comes from."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from swe_rollout.errors import PrerequisiteError
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.text import redaction
from swe_rollout.viewer.token_text import TokenTexts, find_texts

FILE = tokenizer_path() / "tokenizer.json"
TEXTS = TokenTexts("tiny", FILE)
TOKENIZER = Tokenizer.from_file(str(FILE))


@given(text=st.text(max_size=60))
def test_the_texts_of_tokens_make_up_the_text(text: str) -> None:
    ids = TOKENIZER.encode(text.encode(errors="replace").decode(), add_special_tokens=False).ids
    assert "".join(TEXTS.pieces(ids)) == TOKENIZER.decode(ids, skip_special_tokens=False)


@given(ids=st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=40))
def test_every_token_has_a_text_whatever_was_sampled(ids: list[int]) -> None:
    assert len(TEXTS.pieces(ids)) == len(ids)


def test_a_secret_of_this_process_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "abcdefghijklmnop0123456789"
    known = redaction.Redactor()
    known.register(secret)
    monkeypatch.setattr(redaction, "_ALL", known)
    ids = TOKENIZER.encode(f"Bearer {secret}", add_special_tokens=False).ids
    assert set(TEXTS.pieces(ids)) == {"⟨secret⟩"}


def test_a_scripted_policy_uses_the_packages_tokenizer() -> None:
    found = find_texts(None, {}, "scripted:gold")
    assert found is not None
    assert found.name == str(tokenizer_path())


def test_the_tokenizer_that_the_job_names_is_taken_before_the_model() -> None:
    job = {"spec": {"policy": {"tokenizer": str(tokenizer_path())}}}
    assert find_texts(None, job, "sglang:nobody/nothing") is not None


def test_a_tokenizer_that_is_not_here_is_not_fetched() -> None:
    assert find_texts(None, {}, "sglang:nobody/nothing-at-all") is None


@pytest.mark.parametrize("name", ["nobody/nothing-at-all", "./nothing", "\0"])
def test_a_named_tokenizer_that_is_not_here_is_an_error_with_a_cure(name: str) -> None:
    with pytest.raises(PrerequisiteError) as raised:
        find_texts(name, {}, "scripted:gold")
    assert raised.value.fix


def test_a_file_that_is_no_tokenizer_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(PrerequisiteError):
        find_texts(str(tmp_path), {}, "scripted:gold")
