"""Write exports one trajectory at a time, so that any number fits; visible when complete.

The simplest formats are here, too: the stored records, and a text for people.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

import msgspec

from swe_rollout.errors import TaskError, UsageError
from swe_rollout.export.progress import MADE, OUTPUT, Progress, claim
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


def _nothing(_: EpisodeId) -> None:
    return


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format whose output is one file, in which the parts of the episodes follow each other."""

    part: Callable[[Trajectory], bytes]
    """Encodes an episode. Raises TaskError to leave it out."""
    head: bytes = b""
    between: bytes = b""
    tail: bytes = b""
    resumed: Callable[[EpisodeId], None] = _nothing
    """Is told, instead of `part`, of each episode that an earlier process has written."""
    finish: Callable[[Path, Path], None] | None = None
    """Makes the second file from the first, which holds all parts, if that is not the output."""
    resumes: ClassVar[bool] = True
    """Whether an export can go on where another process was killed."""


@dataclass(frozen=True, slots=True)
class FolderFormat:
    """A format whose output is a folder of files."""

    files: Callable[[Trajectory], Iterable[tuple[str, bytes]]]
    """Returns an episode's files by relative path. Raises TaskError to leave it out."""
    at_end: Callable[[], Iterable[tuple[str, bytes]]] = tuple
    """Returns the files about all episodes."""
    index: tuple[str, FileFormat] | None = None
    """A file of the folder to which each episode adds a part, and its name."""
    resumes: bool = True


@dataclass(slots=True)
class _Output:
    """What is being written, under another name."""

    form: FileFormat | FolderFormat
    part: Path
    file: BinaryIO | None
    """The file to which parts are appended, if there is one."""
    lines: FileFormat | None
    """Its format."""

    def add(self, trajectory: Trajectory, *, is_first: bool) -> None:
        """Write an episode."""
        found = without_secrets(trajectory)
        if isinstance(self.form, FolderFormat):
            _write(self.part, tuple(self.form.files(found)))
        if self.file is not None and self.lines is not None:
            part = self.lines.part(found)
            self.file.write((b"" if is_first else self.lines.between) + part)

    def sync(self) -> int:
        """Have the disk hold what was appended; return how much that is."""
        if self.file is None:
            return 0
        self.file.flush()
        os.fsync(self.file.fileno())
        return self.file.tell()

    def finish(self, out: Path) -> None:
        """Write what comes last, and give the output its name."""
        if self.file is not None and self.lines is not None:
            self.file.write(self.lines.tail)
            self.file.flush()
        if isinstance(self.form, FolderFormat):
            _write(self.part, self.form.at_end())
        elif self.form.finish is not None:
            made = self.part.with_name(MADE)
            self.form.finish(self.part, made)
            made.replace(out)
            return
        self.part.rename(out)


async def export(
    trajectories: AsyncIterator[Trajectory],
    out: Path,
    form: FileFormat | FolderFormat,
    *,
    progress: Progress | None = None,
) -> Exported:
    """Write trajectories as they arrive; the output appears when it is complete.

    With `progress`, they are those that it has left, and what is written is kept if this fails.
    Raises UsageError for a folder that exists already.
    """
    progress = progress or Progress(())
    folder, is_over = await asyncio.to_thread(claim, out), False
    if isinstance(form, FolderFormat):
        try:
            await asyncio.to_thread(require_absent, out)
        except UsageError:
            progress.close(out, is_over=progress.is_new)
            raise
    try:
        with await asyncio.to_thread(_open, folder, form, progress) as output:
            async for trajectory in trajectories:
                why = ""
                try:
                    is_first = progress.written == 0
                    await asyncio.to_thread(output.add, trajectory, is_first=is_first)
                except TaskError as error:
                    why = str(error)
                if progress.count(trajectory.episode, why):
                    progress.mark(await asyncio.to_thread(output.sync))
            progress.mark(await asyncio.to_thread(output.sync))
            await asyncio.to_thread(output.finish, out)
        is_over = True
    except UsageError:  # another try would end like this one
        is_over = True
        raise
    finally:
        await asyncio.to_thread(progress.close, out, is_over=is_over or not progress.is_kept)
    return Exported(progress.written, tuple(progress.left_out))


@contextmanager
def _open(folder: Path, form: FileFormat | FolderFormat, progress: Progress) -> Iterator[_Output]:
    """Open the output where `progress` is, or begin it."""
    part = folder / OUTPUT
    name, lines = "", form if isinstance(form, FileFormat) else None
    if isinstance(form, FolderFormat):
        if progress.is_new or not form.resumes:
            # Files of an export that was killed would be among those of this one.
            shutil.rmtree(part, ignore_errors=True)
        part.mkdir(exist_ok=True)
        if form.index is not None:
            name, lines = form.index
    if lines is None:
        yield _Output(form, part, None, None)
        return
    with (part / name if name else part).open("ab") as file:
        file.truncate(progress.size)
        if progress.size == 0:
            file.write(lines.head)
        for episode in progress.done():
            lines.resumed(episode)
        yield _Output(form, part, file, lines)


def require_absent(path: Path) -> None:
    """Raise UsageError if the path of a new folder exists."""
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
