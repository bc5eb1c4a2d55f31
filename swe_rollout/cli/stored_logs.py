"""`logs` of a job in a store: its records as lines, even while another process writes them.

That process's own log goes to its own stderr.
"""

from __future__ import annotations

import asyncio
import time
from tempfile import TemporaryFile
from typing import BinaryIO

from swe_rollout.cli import stored_display
from swe_rollout.cli.job_address import LogFilter, ViewTarget, find_in_store
from swe_rollout.cli.job_tables import write_left_out
from swe_rollout.cli.output import say, write_lines
from swe_rollout.cli.run_display import episode_line
from swe_rollout.errors import UsageError
from swe_rollout.store.layout import JobRef
from swe_rollout.store.store import Store
from swe_rollout.store.summary import JobTally
from swe_rollout.text.escaping import one_line
from swe_rollout.text.formatting import format_duration, logfmt
from swe_rollout.text.paths import instead
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, Turn


async def find_stored(address: str) -> ViewTarget | None:
    """Find a job or an episode in a store; return None if a cluster may have it.

    Raises UsageError for an address with a scheme where nothing is found.
    """
    wanted = LogFilter.parse(address)
    for job in dict.fromkeys((address, wanted.job)):
        try:
            ref = await find_in_store(job)
        except UsageError:
            if job == wanted.job and "://" in address:
                raise
        else:
            instance, _, sample = (wanted.episode or "").rpartition("/")
            episode = EpisodeId(ref.job, instance, int(sample)) if job != address else None
            return ViewTarget(ref, episode)
    return None


async def print_stored(log: ViewTarget, *, follow: bool) -> None:
    """Print a line per episode, in the order in which they ended, or the turns of one.

    With `follow`, continue until every planned episode, or the one, is committed. Raises UsageError
    for a missing episode.
    """
    store = log.open_store()
    if log.episode is not None:
        await _print_episode(store, log.episode, follow=follow)
        return
    tally = JobTally(store, log.ref.job)
    while True:
        began_s = time.monotonic()
        plan = await store.plan(log.ref.job)
        with TemporaryFile("w+b") as lines:
            ends = [_add(lines, trajectory) async for trajectory in tally.read_new()]
            write_lines(_line_at(lines, end) for end in sorted(ends))
        left = await tally.left(plan)
        if not follow or not left:
            break
        await _rest(log.ref, time.monotonic() - began_s)
    if left:
        say(f"{left} episodes are not committed yet; -f waits for them")
    write_left_out(tally.damaged)


def _add(lines: BinaryIO, trajectory: Trajectory) -> bytes:
    """Add an episode's line to a file, for all may not fit; return when it ended, and where."""
    start = lines.tell().to_bytes(8)
    line = at_time(trajectory.finished_at, episode_line(trajectory))
    lines.write(line.encode(errors="surrogatepass") + b"\n")
    return trajectory.finished_at.encode(errors="surrogatepass") + start


def _line_at(lines: BinaryIO, end: bytes) -> str:
    lines.seek(int.from_bytes(end[-8:]))
    return lines.readline().decode(errors="surrogatepass").removesuffix("\n")


def turn_line(episode: EpisodeId, turn: Turn) -> str:
    """Format a turn as one log line."""
    names = [call.name if call.status is CallStatus.OK else call.status for call in turn.tool_calls]
    exits = [each.exit_code for each in turn.observations if each.exit_code is not None]
    return logfmt(
        "turn",
        episode=episode,
        turn=turn.index,
        branch=turn.branch or None,
        calls=",".join(names) or None,
        exit_codes=",".join(map(str, exits)) or None,
        finish=turn.finish_reason,
        tokens=turn.completion_tokens,
        prompt_tokens=turn.request.length,
        cached_tokens=turn.cached_tokens,
        engine=format_duration(turn.engine_s),
        tools=format_duration(turn.tools_s),
    )


def at_time(time_: str, line: str) -> str:
    """Return a line with its time in front, if known."""
    return f"{one_line(time_)} {line}" if time_ else line


async def _print_episode(store: Store, episode: EpisodeId, *, follow: bool) -> None:
    while (found := await store.find(episode)) is None:
        tasks = (await store.plan(episode.job)).order()
        if episode.instance not in tasks:
            raise UsageError(
                f"{episode.job} has no task {episode.instance}",
                why="no episode of it will come",
                fix=instead(episode.instance, tasks),
            )
        if not follow:
            raise UsageError(
                f"{episode} is not in the store",
                why="it is not committed, or there is no such episode",
                fix="-f waits for it",
            )
        await _rest(JobRef(store.uri, episode.job), 0.0)
    write_lines(turn_line(episode, turn) for turn in found.turns)
    write_lines([at_time(found.finished_at, episode_line(found))])


async def _rest(ref: JobRef, took_s: float) -> None:
    await asyncio.sleep(stored_display.rest_s(ref, took_s))
