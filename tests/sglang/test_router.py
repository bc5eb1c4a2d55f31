"""Two real servers behind SGLang's own router: affinity, aborts, weight updates, lost workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from sglang.calls import (
    LONG_CALL,
    PROMPT,
    REQUEST,
    TOKENIZER,
    VOCAB_SIZE,
    count_calls,
    of,
    until_busy,
)
from sglang.served import UPDATE, Breakable, command
from sglang.wire_tap import WireTap
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.pool.pool import EnginePool
from swe_rollout.engine.sglang.control import (
    EngineControl,
    PauseMode,
    WeightUpdate,
    update_weights_on,
)
from swe_rollout.engine.sglang.engine import SglangEngine
from swe_rollout.spec.policy import SglangPolicy
from swe_rollout.tokens.log import InputIds

pytestmark = [pytest.mark.sglang, pytest.mark.slow]

EPISODES, TURNS = 8, 4
TOKENS = 2000
"""Of a call that surely still runs when its worker dies."""


@dataclass(frozen=True)
class Routed:
    """A router and its workers."""

    url: str
    workers: tuple[Breakable, Breakable]

    async def busy(self) -> list[Breakable]:
        """Return the workers that run a call, once one does."""
        for _ in range(600):
            busy = [worker for worker in self.workers if await count_calls(worker.url)]
            if busy:
                return busy
            await asyncio.sleep(0.05)
        pytest.fail("no worker ever had a call")


@pytest.fixture(scope="module")
def routed(
    breakable: Callable[..., Breakable], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Routed]:
    """Start a router that routes by the client's key and leaves retries to the client."""
    workers = (breakable(), breakable())
    state: Path = tmp_path_factory.mktemp("router")
    urls = [worker.url for worker in workers]
    flags = ("--policy=manual", "--disable-retries", "--worker-urls", *urls)
    url = command("router", "--state", state, "--", *flags)
    yield Routed(url, workers)
    command("down", "--state", state)


@pytest.fixture
async def pool(routed: Routed) -> AsyncIterator[EnginePool]:
    """Make a pool that knows the router alone and asks it for its workers."""
    pool = EnginePool(SglangPolicy(url=routed.url), vocab_size=VOCAB_SIZE)
    yield pool
    await pool.aclose()


async def test_an_episode_stays_with_the_server_that_has_its_prompt_cached(
    pool: EnginePool,
) -> None:
    async def uncached(number: int) -> list[int]:
        own = TOKENIZER.encode(f"{number} is the number of this episode. " * 8).ids
        request = replace(of(REQUEST, number), input_ids=InputIds.of([*own, *PROMPT]))
        counts: list[int] = []
        for turn in range(TURNS):
            generation = await pool.generate(replace(request, turn=turn))
            counts.append(generation.prompt_tokens - generation.cached_tokens)
            ids = [*request.input_ids.ids.tolist(), *generation.token_ids, *PROMPT]
            request = replace(request, input_ids=InputIds.of(ids))
        return counts

    for first, *later in await asyncio.gather(*map(uncached, range(EPISODES))):
        assert first > len(PROMPT)
        # The ids sampled last were never processed; an engine may process one token more.
        assert max(later) <= REQUEST.max_new_tokens + len(PROMPT) + 1


async def test_a_cancelled_call_ends_on_the_worker_that_runs_it(
    routed: Routed, pool: EnginePool
) -> None:
    call = asyncio.create_task(pool.generate(LONG_CALL))
    (worker,) = await routed.busy()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until_busy(worker.url, 0, polls=100)


async def test_weights_reach_every_worker(routed: Routed) -> None:
    async with AsyncExitStack() as stack:
        controls = [
            await stack.enter_async_context(EngineControl(worker.url)) for worker in routed.workers
        ]
        update = WeightUpdate(str(UPDATE), "second", PauseMode.RETRACT)
        results = await update_weights_on(controls, update)
    assert all(result.error is None for result in results)
    for worker in routed.workers:
        engine = SglangEngine(SglangPolicy(url=worker.url), vocab_size=VOCAB_SIZE)
        assert (await engine.info()).weight_version == "second"
        await engine.aclose()


async def test_calls_of_a_worker_that_dies_are_repeated_elsewhere_with_the_same_ids(
    routed: Routed, pool: EnginePool
) -> None:
    request: GenerateRequest = replace(LONG_CALL, max_new_tokens=TOKENS)
    with WireTap().listening() as tap:
        calls = [asyncio.create_task(pool.generate(of(request, n))) for n in range(EPISODES)]
        worker, *_ = await routed.busy()
        await worker.kill()
        generations = await asyncio.gather(*calls)

    assert {len(generation.token_ids) for generation in generations} == {TOKENS}
    repeated = 0
    for tries in tap.by_episode().values():
        for call, following in pairwise(tries):
            assert call.response is None
            assert following.ids == call.ids
            assert following.rid != call.rid
            repeated += 1
    assert repeated
