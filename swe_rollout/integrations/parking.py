"""Park episodes: when a trainer stops its engines, each episode waits where it is.

Trainers with partial rollouts abort all generations at the end of a step, and give the unfinished
samples back in a later one. A `ParkingEngine` stands before the real engine: a call that meets the
stop is held, with the episode's clock stopped, and goes on with the same tokens in the same living
sandbox. The agent loop only notices a slow engine. A `Lane` is one episode as its engine sees it,
`ParkedEpisodes` are those that a trainer has not taken back yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Final

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.errors import stopped_clock
from swe_rollout.errors import EngineError
from swe_rollout.launcher.sync import ends_first
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import FinishReason, Generation

QUIET_S: Final = 30.0
"""How long a stop waits for the response of an aborted call, which contains tokens."""


@dataclass(slots=True)
class TokensSoFar:
    """The main branch of a running episode. All columns of the response have the same length."""

    prompt_ids: list[int] = field(default_factory=list)
    response_ids: list[int] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """0.0 where the mask is 0."""
    versions: list[str] = field(default_factory=list)
    """The weight versions that sampled, in order."""

    def read(self, request: GenerateRequest) -> None:
        """Add what the harness wrote since the last call; O(new tokens)."""
        known = len(self.prompt_ids) + len(self.response_ids)
        new: list[int] = request.input_ids.ids[known:].tolist()
        if not known:
            self.prompt_ids = new
            return
        self.response_ids += new
        self.loss_mask += [0] * len(new)
        self.logprobs += [0.0] * len(new)

    def add(self, generation: Generation) -> None:
        """Add what was sampled."""
        self.response_ids += generation.token_ids
        self.loss_mask += [1] * len(generation.token_ids)
        self.logprobs += generation.logprobs
        for span in generation.weight_versions:
            if span.version not in self.versions[-1:]:
                self.versions.append(span.version)


class Lane:
    """An episode as seen between the engine and the trainer."""

    def __init__(self, response_tokens: int | None) -> None:
        """Bound what follows the prompt of a branch by `response_tokens`; None sets no bound."""
        self.tokens = TokensSoFar()
        self.quiet = asyncio.Event()
        """Set while no call is in flight at the engine."""
        self.quiet.set()
        self._open = asyncio.Event()
        self._open.set()
        self._response_tokens = response_tokens
        self._prompts: dict[int, int] = {}

    @property
    def is_parked(self) -> bool:
        """Whether the next call will be held."""
        return not self._open.is_set()

    def park(self) -> None:
        """Hold the next call, or the return of the current one."""
        self._open.clear()

    def resume(self) -> None:
        """Let the episode continue."""
        self._open.set()

    def restart(self) -> None:
        """Forget an attempt that ended, since another one may follow."""
        self.tokens = TokensSoFar()
        self._prompts.clear()

    def room(self, request: GenerateRequest) -> int:
        """Return how many tokens may still follow those of the request."""
        if self._response_tokens is None:
            return request.max_new_tokens
        prompt = self._prompts.setdefault(request.branch, len(request.input_ids))
        left = prompt + self._response_tokens - len(request.input_ids)
        return min(left, request.max_new_tokens)

    async def passage(self, request: GenerateRequest) -> None:
        """Return once the episode may continue; its clock is stopped until then."""
        if self._open.is_set():
            return
        with stopped_clock(request.clock):
            await self._open.wait()


class ParkingEngine(TokenEngine):
    """Holds the calls of lanes while a trainer is stopped."""

    def __init__(
        self,
        engine: TokenEngine,
        *,
        stopped: Callable[[], bool],
        context_tokens: int | None = None,
    ) -> None:
        """Own `engine` and lower the context it reports to `context_tokens`; `stopped` returns
        whether the trainer wants its engines idle.
        """
        self._engine = engine
        self._stopped = stopped
        self._context_tokens = context_tokens
        self._lanes: dict[EpisodeId, Lane] = {}

    @property
    def is_stopped(self) -> bool:
        """Whether the trainer wants its engines idle."""
        return self._stopped()

    def open_lane(self, episode: EpisodeId, lane: Lane) -> None:
        """Follow an episode from now on."""
        self._lanes[episode] = lane

    def close_lane(self, episode: EpisodeId) -> None:
        """Stop following it."""
        self._lanes.pop(episode, None)

    async def info(self) -> EngineInfo:
        info = await self._engine.info()
        bounds = [each for each in (info.context_tokens, self._context_tokens) if each]
        return replace(info, context_tokens=min(bounds, default=None))

    async def generate(self, request: GenerateRequest) -> Generation:
        lane = self._lanes.get(request.episode)
        if lane is None:
            raise EngineError(f"{request.episode} samples, and was not started by the trainer")
        if self._stopped():
            lane.park()
        await lane.passage(request)
        is_main = request.branch == 0
        if is_main:
            lane.tokens.read(request)
        if (room := lane.room(request)) < 1:
            length = len(request.input_ids)
            return Generation((), (), FinishReason.LENGTH, prompt_tokens=length)
        lane.quiet.clear()
        try:
            generation = await self._engine.generate(replace(request, max_new_tokens=room))
        finally:
            lane.quiet.set()
        if is_main:
            lane.tokens.add(generation)
        if generation.finish_reason is FinishReason.ABORT and self._stopped():
            lane.park()
        # Returned later, as an abort: the loop continues the turn with the same ids.
        await lane.passage(request)
        return generation

    def release(self, episode: EpisodeId) -> None:
        self._engine.release(episode)
        if (lane := self._lanes.get(episode)) is not None:
            lane.restart()

    async def aclose(self) -> None:
        await self._engine.aclose()


@dataclass(frozen=True, slots=True, eq=False)
class RunningEpisode:
    """An episode that a trainer has started."""

    id: EpisodeId
    lane: Lane
    task: asyncio.Task[Trajectory]

    async def result(self, engine: ParkingEngine) -> Trajectory | None:
        """Return the record, or park the episode and return None once the trainer has stopped."""
        if await ends_first(self.task, lambda: self.lane.is_parked or engine.is_stopped):
            return self.task.result()
        self.lane.park()
        await self._settled()
        return None

    async def _settled(self) -> None:
        """Wait for the response to a call in flight, which the trainer has aborted."""
        try:
            async with asyncio.timeout(QUIET_S):
                await self.lane.quiet.wait()
        except TimeoutError:
            return


class Episodes:
    """The episodes that a trainer started, including those that wait to be taken back."""

    def __init__(self, engine: ParkingEngine, *, park_s: float, most: int) -> None:
        """Keep at most `most` episodes waiting, and end each after `park_s` seconds."""
        self._engine = engine
        self._park_s = park_s
        self._most = most
        self._parked: dict[str, tuple[RunningEpisode, asyncio.TimerHandle]] = {}
        self._ending: set[asyncio.Task[Trajectory]] = set()

    def __len__(self) -> int:
        return len(self._parked)

    def start(
        self,
        episode: EpisodeId,
        play: Coroutine[None, None, Trajectory],
        *,
        response_tokens: int | None,
    ) -> RunningEpisode:
        """Start an episode, whose calls to the engine begin with its first one."""
        lane = Lane(response_tokens)
        self._engine.open_lane(episode, lane)
        task = asyncio.ensure_future(play)
        task.add_done_callback(lambda _: self._engine.close_lane(episode))
        return RunningEpisode(episode, lane, task)

    def park(self, ticket: str, episode: RunningEpisode) -> None:
        """Keep an episode until it is taken; the one that has waited longest makes room."""
        if len(self._parked) >= self._most:
            self._expire(next(iter(self._parked)))
        timer = asyncio.get_running_loop().call_later(self._park_s, self._expire, ticket)
        self._parked[ticket] = (episode, timer)

    def take(self, ticket: str) -> RunningEpisode | None:
        """Return a parked episode, which then continues; None if it was ended."""
        if (found := self._parked.pop(ticket, None)) is None:
            return None
        episode, timer = found
        timer.cancel()
        episode.lane.resume()
        return episode

    def end(self, episode: RunningEpisode) -> None:
        """Cancel an episode; its sandbox is deleted in the background."""
        episode.task.cancel()
        self._ending.add(episode.task)
        episode.task.add_done_callback(self._ended)

    async def aclose(self) -> None:
        """End all waiting episodes, and wait for their sandboxes to be deleted."""
        for ticket in tuple(self._parked):
            self._expire(ticket)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _expire(self, ticket: str) -> None:
        episode, timer = self._parked.pop(ticket)
        timer.cancel()
        self.end(episode)

    def _ended(self, task: asyncio.Task[Trajectory]) -> None:
        self._ending.discard(task)
        if not task.cancelled():
            # The error of an episode that nobody waits for concerns nobody.
            task.exception()
