"""TokenLog under random conversations: alignment, prefixes, proofs, refusals."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.errors import InternalError
from swe_rollout.tokens.log import InputIds, RequestProof, SegmentKind, TokenLog

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=12)


@dataclass(frozen=True)
class Turn:
    sampled: list[int]
    delta: list[int]


CONVERSATIONS = st.tuples(IDS, st.lists(st.builds(Turn, IDS, IDS), max_size=8))


def _play(prompt: list[int], turns: list[Turn]) -> TokenLog:
    log = TokenLog()
    log.append_prompt(prompt)
    for index, turn in enumerate(turns):
        if index:
            log.append_delta(turn.delta, turn=index)
        log.append_sampled(turn.sampled, [-0.5] * len(turn.sampled), turn=index)
    return log


@given(CONVERSATIONS)
def test_columns_are_aligned_and_segments_name_the_writer(
    conversation: tuple[list[int], list[Turn]],
) -> None:
    log = _play(*conversation)

    assert {len(log.ids), len(log.loss_mask), len(log.logprobs)} == {len(log)}
    np.testing.assert_array_equal(np.isfinite(log.logprobs), log.loss_mask == 1)
    assert log.sampled == log.loss_mask.sum() == sum(len(t.sampled) for t in conversation[1])
    position = 0
    for segment in log.segments:
        assert segment.start == position < segment.end
        sampled = segment.kind is SegmentKind.SAMPLED
        assert set(log.loss_mask[segment.start : segment.end].tolist()) == {int(sampled)}
        position = segment.end
    assert position == len(log)


@given(CONVERSATIONS, st.integers(0, 8))
def test_a_proof_can_be_checked_from_the_final_ids_alone(
    conversation: tuple[list[int], list[Turn]], count: int
) -> None:
    prompt, turns = conversation
    proof = _play(prompt, turns[:count]).request()

    whole = _play(prompt, turns).ids
    prefix = np.array(whole[: proof.length], dtype="<i4")
    assert whole[: proof.length] == _play(prompt, turns[:count]).ids
    assert proof.sha256 == hashlib.sha256(prefix.tobytes()).hexdigest()


def test_the_proof_of_a_known_log_does_not_change() -> None:
    log = TokenLog()
    log.append_prompt([1, 2, 3])

    digest = hashlib.sha256(bytes([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0])).hexdigest()
    assert log.request() == RequestProof(3, digest)


@given(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=4), max_size=6))
def test_the_input_of_a_request_is_the_log_as_numbers_and_as_json(
    pieces: list[list[int]],
) -> None:
    log = TokenLog()
    log.append_prompt([7])
    for index, piece in enumerate(pieces):
        log.append_delta(piece, turn=index)

    given_ids = log.input_ids()
    assert given_ids.tolist() == log.ids == json.loads(b"[%b]" % given_ids.text.tobytes())
    assert len(given_ids) == len(log)
    assert given_ids == InputIds.of(log.ids)


def test_an_input_does_not_change_when_the_log_grows() -> None:
    log = TokenLog()
    log.append_prompt([1, 2])
    before, mask, logprobs = log.input_ids(), log.loss_mask, log.logprobs

    log.append_sampled([3], [-0.1], turn=0)

    assert (len(logprobs), mask.tolist()) == (2, [0, 0])
    assert (before.tolist(), before.text.tobytes()) == ([1, 2], b"1,2")
    for array in (before.ids, before.text):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9


def test_earlier_inputs_do_not_change_however_often_the_log_grows() -> None:
    log = TokenLog()
    log.append_prompt([1, 2])
    inputs = [log.input_ids()]
    for turn in range(200):
        log.append_sampled([turn, 7], [-0.1, -0.1], turn=turn)
        inputs.append(log.input_ids())

    for each in inputs:
        assert each == InputIds.of(log.ids[: len(each)])
        assert each.tolist() == json.loads(b"[%b]" % each.text.tobytes()) == log.ids[: len(each)]


@pytest.mark.parametrize("logprob", [math.nan, math.inf, -math.inf])
def test_a_sampled_id_without_a_finite_logprob_is_refused_and_nothing_is_appended(
    logprob: float,
) -> None:
    log = TokenLog()
    log.append_prompt([1])

    with pytest.raises(InternalError, match="finite"):
        log.append_sampled([2, 3], [-0.1, logprob], turn=0)
    assert log.ids == [1]


def test_ids_and_logprobs_of_different_lengths_are_refused() -> None:
    with pytest.raises(InternalError, match="2 sampled ids but 1 logprobs"):
        TokenLog().append_sampled([2, 3], [-0.1], turn=0)


def test_a_second_prompt_is_refused() -> None:
    log = TokenLog()
    log.append_prompt([1])

    with pytest.raises(InternalError, match="rendered once"):
        log.append_prompt([1])


def test_a_turn_under_two_weight_versions_has_a_segment_for_each() -> None:
    log = TokenLog()
    log.append_prompt([1])
    log.append_sampled([2], [-0.1], turn=0, weight_version="7")
    log.append_sampled([3, 4], [-0.1, -0.2], turn=0, weight_version="8")

    assert [(s.weight_version, s.start, s.end) for s in log.segments[1:]] == [
        ("7", 1, 2),
        ("8", 2, 4),
    ]


def test_a_closed_log_keeps_its_tokens_and_takes_no_more() -> None:
    log = TokenLog()
    log.append_prompt([1, 2])
    log.append_sampled([3], [-0.5], turn=0)
    proof = log.request()
    log.close()
    assert (log.ids, log.sampled, log.request()) == ([1, 2, 3], 1, proof)
    with pytest.raises(InternalError, match="was closed"):
        log.append_delta([4], turn=1)
