"""Secrets stay out of errors, logs and records, in every form in which servers repeat them."""

from __future__ import annotations

import base64
import html
import json
import random
import string
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.errors import EngineError, Problem, SpecError
from swe_rollout.text import redaction
from swe_rollout.text.redaction import MARK, Redactor, secrets_in

pytestmark = pytest.mark.threat(point=9)
KEY = "sk-live_Ab9+/x7Q2m%Z tt00<Kp>"


def knowing(*secrets: str) -> Redactor:
    found = Redactor()
    for each in secrets:
        found.register(each)
    return found


FORMS = {
    "plain": KEY,
    "in lower case": KEY.lower(),
    "in a header": f"Authorization: Bearer {KEY}",
    "percent-encoded": quote(KEY, safe=""),
    "percent-encoded, lower case": quote(KEY, safe="").lower(),
    "in JSON": json.dumps({"error": KEY}),
    "in HTML": html.escape(KEY),
    "in hexadecimal": KEY.encode().hex().upper(),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64 of the header": base64.b64encode(f"Bearer {KEY}".encode()).decode(),
    "base64 of user and password": base64.b64encode(f"me:{KEY}:x".encode()).decode(),
    "base64 for addresses": base64.urlsafe_b64encode(f"xx{KEY}yy".encode()).decode(),
    "beside letters that change their length": f"İİ {KEY}",
}


@pytest.mark.parametrize("form", FORMS)
def test_no_piece_of_a_secret_is_left(form: str) -> None:
    cleaned = knowing(KEY).redact(f"before {FORMS[form]} after")
    assert MARK in cleaned
    assert cleaned.startswith("before ")
    assert cleaned.endswith(" after")
    assert len(cleaned.replace(MARK, "")) < len("before Authorization: Bearer  after") + 5


@given(start=st.integers(0, len(KEY) - 12), size=st.integers(12, len(KEY)))
def test_a_cut_secret_is_found(start: int, size: int) -> None:
    piece = KEY[start : start + size]
    if len(piece) >= 12:
        assert knowing(KEY).redact(f"…{piece}…") == f"…{MARK}…"


@given(st.text())
def test_text_without_secrets_is_unchanged(text: str) -> None:
    if "@" not in text:
        assert knowing(KEY).redact(text) == text


def test_several_secrets_and_repetitions_are_found() -> None:
    cleaned = knowing(KEY, "another-secret-1").redact(f"{KEY}{KEY} and another-secret-1")
    assert cleaned == f"{MARK} and {MARK}"


def test_a_short_secret_is_replaced_as_a_word() -> None:
    assert knowing("abcde").redact("abcde, abcdef, x-abcde") == f"{MARK}, abcdef, x-abcde"
    assert knowing("abc").redact("abc") == "abc"


def test_users_in_addresses_are_removed() -> None:
    assert Redactor().redact("s3://AKIA:secret@bucket/x") == f"s3://{MARK}@bucket/x"


def test_variables_that_are_named_like_secrets_are_secrets() -> None:
    environment = {
        "AWS_SECRET_ACCESS_KEY": "s3cr3t-s3cr3t",
        "HF_TOKEN": "hf_0123456789",
        "MY_PASSWORD": "pass-word-1",
        "HTTPS_PROXY": "http://me:proxy%2Dpass@proxy:3128",
        "AWS_ACCESS_KEY_ID": "AKIA0123456789",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token",
        "GOOGLE_APPLICATION_CREDENTIALS": "/etc/key.json",
        "USE_TOKEN": "true",
        "PATH": "/usr/bin:/bin",
        "BROKEN_URL": "http://[::1",
    }
    found = set(secrets_in(environment))
    assert found == {
        "s3cr3t-s3cr3t",
        "hf_0123456789",
        "pass-word-1",
        "proxy%2Dpass",
        "proxy-pass",
    }


def test_errors_are_made_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_ALL", knowing(KEY))
    error = EngineError(f"a {KEY}", why=f"b {KEY}", fix=f"c {KEY}")
    problems = SpecError("bad", [Problem("job.yaml:3", "spec.x", f"found {KEY!r}")])
    for text in (str(error), repr(error), error.fix, *map(str, problems.problems)):
        assert KEY not in text
        assert MARK in text


def test_a_record_keeps_its_numbers_and_loses_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = "123456789012345"
    monkeypatch.setattr(redaction, "_IN_USE", knowing(digits, KEY))
    record = {"ids": [int(digits)], "logprobs": [-0.1234567890123456], "text": f"x {KEY} {digits}"}
    cleaned = msgspec.json.decode(redaction.redact_record(msgspec.json.encode(record)))
    assert cleaned == {**record, "text": f"x {MARK} {MARK}"}


def test_a_record_without_secrets_is_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_IN_USE", knowing(KEY))
    data = b'{ "as": "it was" }'
    assert redaction.redact_record(data) is data


def test_a_text_of_many_lines_is_cleaned_at_once() -> None:
    noise = "".join(random.Random(1).choices(string.printable, k=20_000))
    cleaned = knowing(KEY).redact(noise[:10_000] + KEY + noise[10_000:])
    assert cleaned == noise[:10_000] + MARK + noise[10_000:]
