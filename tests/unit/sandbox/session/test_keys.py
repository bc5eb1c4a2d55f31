"""Keys that processes of one job derive alike, and nobody else."""

from __future__ import annotations

import pytest

from swe_rollout.errors import PrerequisiteError
from swe_rollout.sandbox.session.keys import VARIABLE, SessionKeys, SessionLife
from swe_rollout.sandbox.session.seal import (
    HEADER_BYTES,
    KEY_BYTES,
    Frame,
    FrameSeal,
    Side,
    parse_header,
)
from swe_rollout.text.redaction import secrets_in

SECRET = "0123456789abcdef" * 4


def test_a_job_without_the_variable_has_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert SessionKeys.from_environment() is None
    monkeypatch.setenv(VARIABLE, "")
    assert SessionKeys.from_environment() is None


@pytest.mark.parametrize("value", ["hunter2", SECRET[:-1], SECRET + "0", "g" * 64, "é" * 64])
def test_what_could_be_guessed_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(PrerequisiteError, match="64 hexadecimal digits") as caught:
        SessionKeys.from_environment()
    assert value not in f"{caught.value} {caught.value.fix}"


def test_each_sandbox_has_a_key_of_its_own_the_same_in_every_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, f" {SECRET.upper()}\n")
    first, second = SessionKeys.from_environment(), SessionKeys(bytes.fromhex(SECRET))
    assert first == second
    assert first.of("one") == second.of("one") != second.of("two")
    assert len(second.of("one")) == KEY_BYTES
    assert SessionKeys(bytes(32)).of("one") != second.of("one")


def test_neither_secret_nor_key_shows() -> None:
    keys = SessionKeys(bytes.fromhex(SECRET))
    life = SessionLife(keys.of("one"), 1)
    assert SECRET[:8] not in f"{keys!r}{keys}"
    assert repr(keys.of("one")) not in repr(life)


def test_the_variable_is_one_whose_value_is_redacted() -> None:
    assert list(secrets_in({VARIABLE: SECRET})) == [SECRET]


def test_lives_share_no_number_of_streams_and_requests() -> None:
    most = 1 << 31
    assert SessionLife(None, 1).first > most
    assert SessionLife(None, 2).first > SessionLife(None, 1).first + most


def test_a_frame_of_one_life_is_not_genuine_in_another() -> None:
    """A command that has recorded what a relay carried can't speak for the supervisor later."""
    key = SessionKeys(bytes.fromhex(SECRET)).of("one")
    old, new = (SessionLife(key, number).first + 1 for number in (1, 2))
    recorded = FrameSeal(key, old, side=Side.SUPERVISOR).seal(Frame(0, 64, b"/bin/sh"))
    header, body = parse_header(recorded[:HEADER_BYTES]), b"/bin/sh"
    assert FrameSeal(key, old).is_genuine(header, body)
    assert not FrameSeal(key, new).is_genuine(header, body)
