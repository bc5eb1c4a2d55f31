"""Search the texts of a job's records, a few at a time, so that a page can show what is found."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from swe_rollout.store.damage import DamagedRecord
from swe_rollout.store.store import Store
from swe_rollout.text.redaction import redact
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory

_BUDGET_S: Final = 0.5
"""The time after which a part of the search ends."""
_MOST_HITS: Final = 50
_OF_ONE: Final = 3
"""The most hits in one episode."""
_AROUND: Final = 80
"""The number of characters shown before and after a hit."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A place where the text was found."""

    instance: str
    sample: int
    place: str
    """What the text is, such as `turn 3`."""
    turn: int | None
    before: str
    found: str
    after: str


@dataclass(frozen=True, slots=True)
class Found:
    """The hits in a part of the job's episodes."""

    hits: tuple[Hit, ...]
    searched: int
    """The number of episodes in this part."""
    last: str | None
    """`instance/sample` to go on after; None if no episode is left."""


async def search(store: Store, job: str, text: str, after: EpisodeId | None) -> Found:
    """Search episodes behind `after` for the text, in any case, until the time is spent."""
    pattern = re.compile(re.escape(text), re.IGNORECASE)
    episodes = sorted(await store.committed(job), key=_position)
    if after is not None:
        episodes = [each for each in episodes if _position(each) > _position(after)]
    hits: list[Hit] = []
    end_s, searched = time.monotonic() + _BUDGET_S, 0
    async for record in store.records(episodes):
        searched += 1
        if not isinstance(record, DamagedRecord):
            hits += islice(_hits(record, pattern), _OF_ONE)
        is_last = searched == len(episodes)
        if not is_last and (len(hits) >= _MOST_HITS or time.monotonic() > end_s):
            last = f"{record.episode.instance}/{record.episode.sample}"
            return Found(tuple(hits), searched, last)
    return Found(tuple(hits), searched, None)


def _position(episode: EpisodeId) -> tuple[str, int]:
    return episode.instance, episode.sample


def _hits(trajectory: Trajectory, pattern: re.Pattern[str]) -> Iterator[Hit]:
    episode = trajectory.episode
    for place, turn, text in _texts(trajectory):
        shown = redact(text)
        if match := pattern.search(shown):
            start, end = match.span()
            yield Hit(
                episode.instance,
                episode.sample,
                place,
                turn,
                shown[max(start - _AROUND, 0) : start],
                shown[start:end],
                shown[end : end + _AROUND],
            )


def _texts(trajectory: Trajectory) -> Iterator[tuple[str, int | None, str]]:
    """Yield the texts of an episode, each with what it is and its turn."""
    if trajectory.failure is not None:
        yield "failure", None, trajectory.failure.message
    for turn in trajectory.turns:
        yield f"turn {turn.index}", turn.index, turn.text
        for call in turn.tool_calls:  # a quote or a new line is escaped in the text of the turn
            values = (v if isinstance(v, str) else str(v) for v in call.arguments.values())
            yield f"turn {turn.index}, {call.name or 'call'}", turn.index, "\n".join(values)
        for seen in turn.observations:
            yield f"turn {turn.index}, result", turn.index, seen.text
    yield "patch", None, trajectory.patch or ""
    if trajectory.verdict is not None:
        yield "findings", None, "\n".join(trajectory.verdict.integrity)
        yield "end of the test log", None, trajectory.verdict.log_tail
    for prompt in trajectory.prompts:
        yield "prompt", None, prompt.text
