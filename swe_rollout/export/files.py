"""Write exports one trajectory at a time, so that any number fits; visible when complete.

The simplest formats are here, too: the stored records, and a text for people.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from swe_rollout.errors import TaskError, UsageError
from swe_rollout.text.formatting import format_duration
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import to_json, without_secrets
from swe_rollout.types.turn import Observation, ToolCall, Turn


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export."""

    episodes: int
    """The number of episodes in the output."""
    left_out: tuple[tuple[EpisodeId, str], ...] = ()
    """Episodes that the format can't represent, each with the reason."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format whose output is one file, in which the parts of the episodes follow each other."""

    part: Callable[[Trajectory], bytes]
    """Encodes an episode. Raises TaskError to leave it out."""
    head: bytes = b""
    between: bytes = b""
    tail: bytes = b""

    @asynccontextmanager
    async def writing(self, out: Path) -> AsyncIterator[Callable[[Trajectory], None]]:
        """Write one file, which replaces an existing one if the block succeeds."""
        before = iter([b""])
        async with complete_file(out) as file:

            def write(trajectory: Trajectory) -> None:
                part = self.part(trajectory)
                file.write(next(before, self.between) + part)

            file.write(self.head)
            yield write
            file.write(self.tail)


@dataclass(frozen=True, slots=True)
class FolderFormat:
    """A format whose output is a folder of files."""

    files: Callable[[Trajectory], Iterable[tuple[str, bytes]]]
    """Returns an episode's files by relative path. Raises TaskError to leave it out."""
    at_end: Callable[[], Iterable[tuple[str, bytes]]] = tuple
    """Returns the files about all episodes."""

    @asynccontextmanager
    async def writing(self, out: Path) -> AsyncIterator[Callable[[Trajectory], None]]:
        """Write a folder, which appears if the block succeeds.

        Raises UsageError if it exists already.
        """
        part = out.with_name(f"{out.name}.part")
        await asyncio.to_thread(_require_absent, out, part)
        await asyncio.to_thread(part.mkdir, parents=True)
        try:
            yield lambda trajectory: _write(part, tuple(self.files(trajectory)))
            await asyncio.to_thread(_write, part, self.at_end())
            await asyncio.to_thread(part.rename, out)
        finally:
            await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)


async def export(
    trajectories: AsyncIterator[Trajectory], out: Path, form: FileFormat | FolderFormat
) -> Exported:
    """Write trajectories as they arrive; the output appears when it is complete."""
    episodes, left_out = 0, list[tuple[EpisodeId, str]]()
    async with form.writing(out) as write:
        async for trajectory in trajectories:
            try:
                await asyncio.to_thread(write, without_secrets(trajectory))
            except TaskError as error:
                left_out.append((trajectory.episode, str(error)))
            else:
                episodes += 1
    return Exported(episodes, tuple(left_out))


@asynccontextmanager
async def complete_file(out: Path) -> AsyncIterator[BinaryIO]:
    """Open a new file, which replaces `out` if the block succeeds."""
    part = out.with_name(f"{out.name}.part")
    await asyncio.to_thread(out.parent.mkdir, parents=True, exist_ok=True)
    try:
        with await asyncio.to_thread(part.open, "wb") as file:
            yield file
        await asyncio.to_thread(part.replace, out)
    finally:
        await asyncio.to_thread(part.unlink, missing_ok=True)


def _require_absent(*paths: Path) -> None:
    for path in paths:
        if os.path.lexists(path):
            raise UsageError(
                f"{path} exists already",
                why="an export writes a new folder, and deletes none",
                fix="move it away, or name another one: -O FOLDER",
            )


def _write(folder: Path, files: Iterable[tuple[str, bytes]]) -> None:
    for name, data in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def encode(value: object) -> bytes:
    """Encode as JSON in UTF-8; lone surrogates, which UTF-8 can't encode, become `?`."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode(errors="replace")


def line(value: object) -> bytes:
    """Encode as a line of JSON."""
    return encode(value) + b"\n"


JSON = FileFormat(to_json, head=b"[\n", between=b",\n", tail=b"\n]\n")
"""The format of one JSON array of records (docs/reference/trajectory.md)."""

JSONL = FileFormat(lambda trajectory: to_json(trajectory) + b"\n")
"""The format of one record per line."""


def text_format(show: Callable[[str], str]) -> FileFormat:
    """Return the format for people; `show` makes control characters of untrusted text visible."""

    def part(trajectory: Trajectory) -> bytes:
        text = "\n".join(_lines(trajectory))
        return show(text).encode(errors="replace") + b"\n"

    return FileFormat(part, between=b"\n")


def _lines(trajectory: Trajectory) -> Iterator[str]:
    yield f"==== {trajectory.episode}"
    yield f"policy {trajectory.policy}, attempt {trajectory.attempt}, {trajectory.finished_at}"
    yield _ending(trajectory)
    for turn in trajectory.turns:
        yield ""
        yield from _turn(turn)
    if trajectory.patch:
        yield ""
        yield "---- patch"
        yield trajectory.patch.removesuffix("\n")
    if trajectory.verdict is not None:
        yield ""
        yield f"---- verdict: {trajectory.verdict.status}"
        report = trajectory.verdict.report
        for name, status in (report.fail_to_pass | report.pass_to_pass | report.others).items():
            yield f"{status} {name}"
        for finding in trajectory.verdict.integrity:
            yield f"finding: {finding}"


def _ending(trajectory: Trajectory) -> str:
    failure, reward = trajectory.failure, trajectory.reward
    ended = f"failed: {failure.type}: {failure.message}" if failure else trajectory.stop_reason
    if trajectory.stop_evidence:
        ended = f"{ended} ({trajectory.stop_evidence})"
    earned = "no reward" if reward is None else f"reward {reward.value:g}"
    return f"{ended}, {earned}, {len(trajectory.turns)} turns, {len(trajectory.token_ids)} tokens"


def _turn(turn: Turn) -> Iterator[str]:
    seconds = f"engine {format_duration(turn.engine_s)}, tools {format_duration(turn.tools_s)}"
    yield f"---- turn {turn.index}: {turn.completion_tokens} tokens, {seconds}"
    yield turn.text
    for position, call in enumerate(turn.tool_calls):
        done = position < len(turn.observations)
        yield from _call(position, call, turn.observations[position] if done else None)


def _call(position: int, call: ToolCall, seen: Observation | None) -> Iterator[str]:
    name = call.name or "call"
    if seen is None:
        yield f"-- {position} {name}: {call.status}, not run"
        return
    marks = [
        str(call.status),
        *(["timed out"] if seen.timed_out else []),
        *(["cut"] if seen.truncated else []),
        format_duration(seen.duration_s),
    ]
    yield f"-- {position} {name}: {', '.join(marks)}"
    yield seen.text
