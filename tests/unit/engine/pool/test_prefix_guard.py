"""Every request must continue the last response of its episode, id for id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swe_rollout.engine.pool.prefix_guard import PrefixGuard
from swe_rollout.errors import InternalError
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.turn import FinishReason, Generation
from unit.engine.engine_parts import request


def generation(*ids: int) -> Generation:
    return Generation(ids, (0.0,) * len(ids), FinishReason.STOP, prompt_tokens=3)


@pytest.fixture
def guard() -> PrefixGuard:
    guard = PrefixGuard()
    guard.add(request(1, 2, 3), generation(41, 42))
    return guard


@pytest.mark.parametrize("ids", [(1, 2, 3, 41, 42), (1, 2, 3, 41, 42, 5)])
@pytest.mark.parametrize("turn", [0, 1])
def test_a_request_that_continues_the_response_is_accepted(
    guard: PrefixGuard, turn: int, ids: tuple[int, ...]
) -> None:
    guard.check(request(*ids, turn=turn))


@pytest.mark.parametrize(
    "ids",
    [
        (1, 2, 3),
        (1, 2, 3, 41),
        (1, 2, 3, 41, 4, 2),
        (1, 2, 3, 41, 420),
        (1, 2, 3, 4142),
        (1, 2, 34, 1, 42),
        (12, 3, 41, 42),
        (1, 2, 3, 41, 43, 5),
    ],
)
@pytest.mark.parametrize("turn", [0, 1])
def test_a_request_that_differs_in_one_id_is_refused(
    guard: PrefixGuard, turn: int, ids: tuple[int, ...]
) -> None:
    with pytest.raises(InternalError, match="nothing was sent"):
        guard.check(request(*ids, turn=turn))


def test_the_chain_continues_over_turns(guard: PrefixGuard) -> None:
    second = request(1, 2, 3, 41, 42, 6, turn=1)
    guard.check(second)
    guard.add(second, generation(7))
    guard.check(request(1, 2, 3, 41, 42, 6, 7, 8, turn=2))
    with pytest.raises(InternalError):
        guard.check(request(1, 2, 3, 41, 42, 6, 8, turn=2))


def test_it_remembers_what_was_sent_and_not_what_became_of_it() -> None:
    guard, sent = PrefixGuard(), request(1, 2, 3)
    guard.add(sent, generation(4))
    view: object = sent.input_ids.text.base
    assert isinstance(view, memoryview)
    assert isinstance(view.obj, bytearray)
    view.obj[0] = ord("9")
    log = replace(sent, input_ids=InputIds.of((9, 2, 3, 4)))
    with pytest.raises(InternalError):
        guard.check(log)
    guard.check(request(1, 2, 3, 4))


def test_a_response_without_tokens_leaves_its_prompt_free(guard: PrefixGuard) -> None:
    guard.add(request(1, 2, 3, 41, 42, 6, turn=1), generation())
    guard.check(request(1, 2, 3, 41, 42, 7, turn=1))
    with pytest.raises(InternalError):
        guard.check(request(1, 2, 3, 41, 6, turn=1))


def test_other_episodes_are_independent(guard: PrefixGuard) -> None:
    guard.check(request(5, sample=1))


def test_turn_0_after_a_later_turn_is_a_new_attempt(guard: PrefixGuard) -> None:
    guard.add(request(1, 2, 3, 41, 42, 6, turn=1), generation(7))
    guard.check(request(1, 2))
    with pytest.raises(InternalError):
        guard.check(request(1, 2, turn=1))


def test_a_released_episode_may_begin_with_any_ids_in_any_turn(guard: PrefixGuard) -> None:
    guard.release(request().episode)
    guard.check(request(9, 9, turn=4))
    guard.release(request().episode)


def test_episodes_that_are_never_released_are_dropped_oldest_first() -> None:
    guard = PrefixGuard(kept_bytes=30)
    for sample in range(10):
        guard.add(request(1, 2, 3, sample=sample), generation(4))
    for sample in range(6):
        guard.check(request(7, sample=sample))
    for sample in range(6, 10):
        with pytest.raises(InternalError):
            guard.check(request(7, sample=sample))
    guard.add(replace(request(*range(100)), turn=1), generation(4))
    guard.check(request(7, turn=1))
    guard.check(request(7, sample=9))


def test_branches_of_an_episode_are_checked_each_for_itself(guard: PrefixGuard) -> None:
    other = replace(request(9, 9, turn=1), branch=1)
    guard.check(other)
    guard.add(other, generation(5))
    guard.check(request(1, 2, 3, 41, 42, 6, turn=2))
    guard.check(replace(request(9, 9, 5, 6, turn=3), branch=1))
    with pytest.raises(InternalError):
        guard.check(replace(request(1, 2, 3, 41, 42, 6, turn=3), branch=1))


def test_a_release_is_of_all_branches(guard: PrefixGuard) -> None:
    guard.add(replace(request(9, 9, turn=1), branch=1), generation(5))
    guard.release(request().episode)
    guard.check(request(7, turn=2))
    guard.check(replace(request(7, turn=2), branch=1))
    assert guard._size == 0
