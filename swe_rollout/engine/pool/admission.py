"""Admission: which episodes may have their context in a server's KV cache, and which wait.

A server that gets more contexts than its cache holds evicts each before its next turn and computes
it again. So an episode needs room, a place, for its context. It enters before its sandbox starts,
keeps its place over its tool calls, and leaves it when it ends. Whoever has none waits here.

- A new context enters if, as far as sizes are known (`pool.footprint`), none has to yield later.
- If the contexts outgrow the cache all the same, turns wait for the end of other episodes. When
  nobody goes on any more, the one next to its end does, and the one that was used least recently
  yields: that is what the server evicts. Its next turn waits for a place, before all new ones.
- A context that is alone always has a place, however large. So somebody always plays on.
- A tool call of more than a minute, or an episode that nobody releases, keeps no place from others.

Nothing here contacts a server. Used by `pool.replica`: each server has its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.pool.footprint import Growth, Sizes, peak
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import Generation

KEEP_S: Final = 60.0
"""After this long without a call, a context keeps its place only if nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many wait for a place, and what there is."""

    starting: int = 0
    """Episodes that have not started."""
    turns: int = 0
    """Turns of episodes that had to yield, or would grow too large now."""
    held_tokens: int = 0
    cache_tokens: int = 0


class _Use(NamedTuple):
    """A context in the cache, which is evicted when all used before it are."""

    used_at: float
    tokens: int


@dataclass(slots=True, eq=False)
class Context:
    """An episode's context. Its tokens are those that it does not share with others."""

    number: int
    """Counts the contexts in the order of their arrival."""
    wanted: int
    """The size that it needs a place for."""
    is_new: bool = False
    """Whether it waits to start."""
    tokens: int = 0
    shared: int | None = None
    """Tokens of its first prompt that the cache had from others; None before the first call."""
    holds: bool = False
    calls: int = 0
    """Calls that wait or run; more than one only of a program with several agents."""
    runs: bool = False
    used_at: float = -math.inf
    """When its last call ended; servers evict the least recently used first."""
    idle_since: float = 0.0
    """When it got its place, or its last call ended."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def turn_waits(self) -> bool:
        return self.calls > 0 and not self.runs


class Admission:
    """The places in one server's KV cache. Without a size, everybody has one."""

    def __init__(self, sizes: Sizes, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called when the number of those that wait has changed."""
        self._sizes = sizes
        self._on_change = on_change
        self._cache: int | None = None
        self._held = 0
        self._unplaced: list[_Use] = []
        """Contexts without a place that may still take room in the cache."""
        self._unplaced_tokens = 0
        self._contexts: dict[EpisodeId, Context] = {}
        self._arrivals = 0
        self._seen = (0, 0)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> Waiting:
        """Return who waits now."""
        return Waiting(*self._count(), self._held, self._cache or 0)

    @property
    def capacity(self) -> int | None:
        """Return how many episodes could have a place now; None if all."""
        if self._cache is None:
            return None
        holders, sizes = self._holders(), self._sizes
        room = self._cache - peak(map(self._growth, holders))
        return max(1, len(holders) + int(max(0, room) / sizes.final(sizes.first, sizes.shared)))

    def resize(self, cache_tokens: int | None) -> None:
        """Set the size of the cache; None if it is unknown or need not be kept."""
        if cache_tokens != self._cache:
            self._cache = cache_tokens
            self._settle()

    async def enter(self, episode: EpisodeId) -> None:
        """Wait for a place for an episode that starts."""
        context = self._contexts.get(episode) or self._add(episode)
        if context.holds or context.calls:
            return
        context.is_new = True
        context.wanted = self._sizes.first
        self._settle()
        try:
            await context.ready.wait()
        except asyncio.CancelledError:
            self._remove(episode, context)
            raise

    def begin(self, request: GenerateRequest) -> Context:
        """Return the context of a call, which may be sent once it is `ready`; `end` must follow."""
        context = self._contexts.get(request.episode) or self._add(request.episode)
        context.is_new = False
        context.calls += 1
        if not context.runs:
            tokens = len(request.input_ids) + min(request.max_new_tokens, self._sizes.sampled)
            self._want(context, tokens)
        return context

    def learn(self, context: Context, generation: Generation) -> None:
        """Record the size that a context has after a call."""
        prompt, sampled = generation.prompt_tokens, len(generation.token_ids)
        if context.shared is None:
            context.shared = min(prompt, generation.cached_tokens)
            self._sizes.began(prompt, context.shared)
        self._sizes.grew(sampled)
        context.wanted = prompt + sampled - context.shared

    def end(self, context: Context) -> None:
        """End a call, however it ended; its context keeps its place."""
        context.calls -= 1
        if context.calls:
            return
        if context.runs:
            context.used_at = context.idle_since = asyncio.get_running_loop().time()
            if context.holds:
                self._resize(context)
        else:
            context.wanted = context.tokens
        context.runs = False
        if self._seen != (0, 0):
            self._settle()

    def release(self, episode: EpisodeId) -> None:
        """Free the place of an episode that ended, or begins again with other tokens."""
        if (context := self._contexts.get(episode)) is not None:
            if context.shared is not None:
                self._sizes.ended(context.tokens)
            self._remove(episode, context)

    def clear(self) -> None:
        """Forget all contexts, because the server and its cache are lost."""
        for context in self._contexts.values():
            context.holds = False
        self._contexts.clear()
        self._unplaced.clear()
        self._held = self._unplaced_tokens = 0
        self._settle()

    def _add(self, episode: EpisodeId) -> Context:
        self._arrivals += 1
        context = self._contexts[episode] = Context(self._arrivals, self._sizes.first)
        return context

    def _remove(self, episode: EpisodeId, context: Context) -> None:
        if self._contexts.get(episode) is context:
            self._yield(context)
            del self._contexts[episode]
            self._settle()

    def _want(self, context: Context, tokens: int) -> None:
        """Let a turn run that makes its context this large, now or when there is room."""
        context.wanted = tokens - (context.shared or 0)
        if context.holds and self._fits(context):
            self._grant(context)
            return
        context.ready.clear()
        self._settle()

    def _holders(self) -> list[Context]:
        return [each for each in self._contexts.values() if each.holds]

    def _left(self, context: Context) -> float:
        growth = self._growth(context)
        return growth.final - growth.tokens

    def _growth(self, context: Context) -> Growth:
        shared = self._sizes.shared if context.shared is None else context.shared
        return Growth(context.wanted, self._sizes.final(context.wanted, shared))

    def _forget_evicted(self) -> None:
        """Forget contexts without a place that the server evicts before any with one.

        A turn that waits is to run next, and then its context is the last to be evicted.
        """
        idle = (each.used_at for each in self._holders() if not each.calls)
        oldest = min((used_at for used_at in idle if used_at > -math.inf), default=math.inf)
        self._unplaced = [each for each in self._unplaced if each.used_at > oldest]
        self._unplaced_tokens = sum(each.tokens for each in self._unplaced)

    def _fits(self, context: Context) -> bool:
        """Whether there is room for what a context has to grow."""
        if self._cache is None:
            return True
        free = self._cache - self._held - (context.wanted - context.tokens)
        if free < self._unplaced_tokens:
            self._forget_evicted()
        return free >= self._unplaced_tokens

    def _settle(self) -> None:
        """Give places to those that wait, as far as there is room."""
        while grown := [each for each in self._holders() if each.turn_waits]:
            grown.sort(key=self._left)
            context = next(filter(self._fits, grown), None) or self._squeezed(grown)
            if context is None:
                break
            self._grant(context)
        else:
            self._admit()
        if (seen := self._count()) != self._seen:
            self._seen = seen
            self._on_change()

    def _squeezed(self, grown: list[Context]) -> Context | None:
        """Return the one next to its end, at the cost of others, if nobody else goes on."""
        while len(grown) < len(holders := self._holders()):
            if any(each.runs for each in holders) or (idle := self._longest_idle()) is None:
                return None
            self._yield(idle)
        first, *others = grown
        others.sort(key=lambda each: -each.used_at)
        while others and not self._fits(first):
            self._yield(others.pop())
        return first

    def _admit(self) -> None:
        """Let contexts without a place enter: those that had to yield first, then new ones."""
        while queue := self._queue():
            head = min(queue, key=_order)
            while not self._enters(head):
                if (idle := self._longest_idle()) is None:
                    return
                self._yield(idle)
            head.holds = True
            self._held += head.tokens
            self._grant(head)

    def _queue(self) -> list[Context]:
        waiting = (each for each in self._contexts.values() if not each.holds)
        return [each for each in waiting if each.is_new or each.turn_waits]

    def _enters(self, context: Context) -> bool:
        if self._cache is None or not (holders := self._holders()):
            return True
        self._forget_evicted()
        most = peak(map(self._growth, (*holders, context)))
        return most + self._unplaced_tokens <= self._cache

    def _longest_idle(self) -> Context | None:
        """Return a context that has been idle for too long; look again when one could be."""
        loop = asyncio.get_running_loop()
        idle = [each for each in self._holders() if not each.calls]
        found = min(idle, key=lambda each: each.idle_since, default=None)
        since = loop.time() if found is None else found.idle_since
        if found is not None and since + KEEP_S <= loop.time():
            return found
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(since + KEEP_S, self._settle)
        return None

    def _grant(self, context: Context) -> None:
        self._resize(context)
        context.idle_since = asyncio.get_running_loop().time()
        context.runs = context.calls > 0
        context.is_new = False
        context.ready.set()

    def _resize(self, context: Context) -> None:
        self._held += context.wanted - context.tokens
        context.tokens = context.wanted

    def _yield(self, context: Context) -> None:
        if context.holds:
            context.holds = False
            self._held -= context.tokens
            if self._cache is not None:
                self._unplaced.append(_Use(context.used_at, context.tokens))
                self._unplaced_tokens += context.tokens

    def _count(self) -> tuple[int, int]:
        """Count who waits to start, and whose turn waits."""
        contexts = self._contexts.values()
        return sum(each.is_new for each in contexts), sum(each.turn_waits for each in contexts)


def _order(context: Context) -> tuple[bool, int, int]:
    """Return the place in the queue: interrupted ones, the largest first, then new ones."""
    return (context.is_new, 0 if context.is_new else -context.wanted, context.number)
