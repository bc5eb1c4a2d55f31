"""Which contexts have a place in a server's cache, in simulated time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.pool.admission import KEEP_S, Admission, Context
from swe_rollout.engine.pool.footprint import Sizes
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, Generation
from unit.engine.engine_parts import request
from unit.engine.pool.cache_parts import Plan, Server, simulate


def admission(cache_tokens: int | None, *, limit: int = 1000) -> Admission:
    places = Admission(Sizes(limit))
    places.resize(cache_tokens)
    return places


def call(sample: int, tokens: int, **changes: Any) -> GenerateRequest:
    return request(sample=sample, input_ids=InputIds.of((1,) * tokens), **changes)


def sampled(prompt: int, tokens: int, cached: int = 0) -> Generation:
    return Generation((1,) * tokens, (-0.5,) * tokens, FinishReason.STOP, prompt, cached)


def take_turn(places: Admission, sample: int, prompt: int, tokens: int = 1) -> Context:
    """Begin and end a call that does not have to wait."""
    context = places.begin(call(sample, prompt, max_new_tokens=tokens))
    assert context.ready.is_set()
    places.learn(context, sampled(prompt, tokens))
    places.end(context)
    return context


def simulated(work: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            await work()

        simulate(run)

    test.__name__ = work.__name__
    return test


async def soon() -> None:
    """Let tasks go on that can."""
    for _ in range(5):
        await asyncio.sleep(0)


def play(
    plans: Sequence[Plan], cache_tokens: int, admitted: int | None, limit: int
) -> tuple[Server, float]:
    """Play episodes at once on a server; return it, and how long they took."""

    async def work() -> Server:
        server, places = Server(cache_tokens), admission(admitted, limit=limit)
        await asyncio.gather(*(server.play(places, *each) for each in enumerate(plans)))
        assert (places.waiting.starting, places.waiting.turns) == (0, 0)
        assert places.waiting.held_tokens == 0
        return server

    return simulate(work)


def test_four_times_as_many_episodes_as_fit_are_played_twice_as_fast() -> None:
    plans, cache_tokens = [Plan()] * 32, 8 * 4096
    thrashing, longest_s = play(plans, cache_tokens, None, limit=4096)
    admitted, seconds = play(plans, cache_tokens, cache_tokens, limit=4096)
    assert thrashing.again > 0.9 * thrashing.computed
    assert admitted.again < 0.2 * admitted.computed
    assert 2 * seconds < longest_s


def test_episodes_that_fit_are_as_fast_as_without_admission() -> None:
    plans = [Plan()] * 8
    free, seconds = play(plans, 8 * 4096, None, limit=4096)
    assert free.again == 0
    assert play(plans, 8 * 4096, 8 * 4096, limit=4096)[1] == seconds


@st.composite
def _plans(draw: st.DrawFn) -> list[Plan]:
    rng = random.Random(draw(st.integers(0, 2**32)))
    most = draw(st.sampled_from((100, 1000, 5000)))
    turns = draw(st.integers(1, 6))

    def plan() -> Plan:
        count = rng.randint(1, turns)
        steps = [
            (rng.randint(0, 300), rng.randint(0, 300), rng.uniform(0, 99)) for _ in range(count)
        ]
        return Plan(rng.randint(1, most), steps)

    return [plan() for _ in range(draw(st.integers(1, 12)))]


@settings(max_examples=60, deadline=None)
@given(_plans(), st.integers(1, 8000), st.sampled_from((1, 1000, 100_000)))
def test_all_episodes_end_whatever_their_size(
    plans: list[Plan], cache_tokens: int, limit: int
) -> None:
    play(plans, cache_tokens, cache_tokens, limit)


async def _one_waits() -> None:
    places = admission(3000)
    await places.enter(EpisodeId("job", "task", 0))
    take_turn(places, 0, 2500)
    entering = asyncio.create_task(places.enter(EpisodeId("job", "task", 1)))
    await soon()
    assert not entering.done()
    assert (places.waiting.starting, places.capacity) == (1, 1)
    places.release(EpisodeId("job", "task", 0))
    await entering
    assert places.waiting.starting == 0


test_an_episode_starts_when_one_that_fills_the_cache_has_ended = simulated(_one_waits)


async def _yields() -> None:
    places = admission(1000, limit=1)
    old, young = take_turn(places, 0, 450), take_turn(places, 1, 400)
    await asyncio.sleep(1)
    take_turn(places, 0, 500)
    grown = places.begin(call(0, 700, max_new_tokens=1))
    # The other one may go on at any time: only when it can't either does one have to yield.
    assert grown is old
    assert not grown.ready.is_set()
    turn = places.begin(call(1, 500, max_new_tokens=1))
    assert grown.ready.is_set()
    assert turn is young
    assert not turn.ready.is_set()
    assert places.waiting.turns == 1
    places.end(grown)
    assert not turn.ready.is_set()
    places.release(EpisodeId("job", "task", 0))
    assert turn.ready.is_set()


test_when_all_wait_the_one_next_to_its_end_goes_on_and_the_other_yields = simulated(_yields)


async def _interrupted_first() -> None:
    places = admission(1000, limit=1)
    take_turn(places, 0, 450)
    take_turn(places, 1, 400)
    grown, yielded = places.begin(call(0, 900)), places.begin(call(1, 600))
    assert (grown.ready.is_set(), yielded.ready.is_set()) == (True, False)
    entering = asyncio.create_task(places.enter(EpisodeId("job", "task", 2)))
    await soon()
    places.end(grown)
    places.release(EpisodeId("job", "task", 0))
    assert yielded.ready.is_set()
    places.end(yielded)
    places.release(EpisodeId("job", "task", 1))
    await entering


test_those_that_had_to_yield_go_on_before_new_ones_start = simulated(_interrupted_first)


async def _alone() -> None:
    places = admission(100)
    await places.enter(EpisodeId("job", "task", 0))
    take_turn(places, 0, 5000)
    take_turn(places, 0, 9000)


test_a_context_larger_than_the_cache_has_it_alone = simulated(_alone)


async def _idle() -> None:
    places = admission(1000)
    take_turn(places, 0, 900)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await places.enter(EpisodeId("job", "task", 1))
    assert loop.time() - began == KEEP_S


test_an_episode_that_nobody_releases_keeps_its_place_for_a_minute = simulated(_idle)


async def _lost() -> None:
    places = admission(1000)
    take_turn(places, 0, 900)
    running = places.begin(call(0, 950, max_new_tokens=1))
    places.clear()
    assert places.waiting.held_tokens == 0
    places.end(running)
    places.release(EpisodeId("job", "task", 0))
    take_turn(places, 1, 900)
    assert places.waiting.held_tokens == 901


test_a_lost_server_holds_nothing_any_more = simulated(_lost)


async def _cancelled() -> None:
    changes: list[int] = []
    places = Admission(Sizes(1000), lambda: changes.append(places.waiting.starting))
    places.resize(1000)
    take_turn(places, 0, 900)
    entering = asyncio.create_task(places.enter(EpisodeId("job", "task", 1)))
    await soon()
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert changes == [1, 0]
    turn = places.begin(call(2, 900))
    assert not turn.ready.is_set()
    places.end(turn)  # cancelled while it waits
    assert places.waiting.turns == 0
    assert places.waiting.held_tokens == 901


test_who_no_longer_waits_leaves_nothing_behind = simulated(_cancelled)


async def _shared() -> None:
    places = admission(1000)
    context = places.begin(call(0, 800, max_new_tokens=1))
    places.learn(context, sampled(800, 1, cached=700))
    places.end(context)
    assert places.waiting.held_tokens == 101
    take_turn(places, 0, 850)
    assert places.waiting.held_tokens == 151


test_what_the_cache_has_from_others_is_not_counted_again = simulated(_shared)


async def _resized() -> None:
    places = admission(1000)
    take_turn(places, 0, 900)
    turn = places.begin(call(1, 900))
    assert not turn.ready.is_set()
    places.resize(None)
    assert turn.ready.is_set()
    assert places.capacity is None


test_without_a_size_nobody_waits = simulated(_resized)
