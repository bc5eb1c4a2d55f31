"""How far an export has come, so that one that was killed goes on where it was.

Until the output is complete it is in the folder `OUT.part`, to which nobody else may write: a link
that another user put there in advance would lead to a file of yours. `progress` lies beside it. Its
first line says what is exported and names the episodes; each further one, written after the parts
that it counts, is a `_Mark`. Episodes committed later are not in an export that goes on, and it has
the same bytes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from swe_rollout.errors import UsageError
from swe_rollout.store.damage import DamagedRecord
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory

OUTPUT, MADE, _PROGRESS = "output", "made", "progress"
"""What is in the folder of an output."""
_EACH: Final = 64
"""Episodes from one mark to the next; so many are encoded again at most."""


class _Head(msgspec.Struct, frozen=True):
    what: dict[str, str]
    """The source and the options of the export."""
    episodes: list[tuple[str, str, int]]


class _Mark(msgspec.Struct, frozen=True):
    """What the output holds so far."""

    episodes: int
    """How many of the episodes were read."""
    written: int
    """How many of these are in the output."""
    size: int
    """The bytes of the file to which their parts are appended."""
    left_out: list[tuple[tuple[str, str, int], str]] = []
    """Further ones that the format can't represent."""
    damaged: list[tuple[tuple[str, str, int], str, str]] = []
    """Further ones that can't be read."""


class Progress:
    """The episodes of an export in their order, and how many of them are written."""

    def __init__(self, episodes: Sequence[EpisodeId], file: BinaryIO | None = None) -> None:
        """Begin with none of them; without a file, nothing is kept."""
        self._episodes = episodes
        self._file = file
        self._read = 0
        self._marked = 0
        self._new_left_out: list[tuple[EpisodeId, str]] = []
        self._new_damaged: list[DamagedRecord] = []
        self.is_new = True
        """Whether no earlier process has begun."""
        self.written = 0
        """How many episodes are in the output."""
        self.size = 0
        """The bytes that are kept of the file to which parts are appended."""
        self.left_out: list[tuple[EpisodeId, str]] = []
        self.damaged: list[DamagedRecord] = []

    @classmethod
    def open(
        cls,
        out: Path,
        what: Mapping[str, str],
        episodes: Sequence[EpisodeId],
        *,
        resumes: bool = True,
    ) -> Progress:
        """Lock the progress of the output `out`: that of an earlier process, or a new one.

        Without `resumes`, of an earlier one only the choice of episodes is kept. Raises UsageError
        if another process writes it, or the earlier export was another one.
        """
        folder = claim(out)
        file = (folder / _PROGRESS).open("a+b")
        try:
            _lock(file, out)
            file.seek(0)
            lines = [line for line in file if line.endswith(b"\n")]
            found = _head(lines) if (folder / OUTPUT).exists() else None
            if found is None:
                _remove(folder / OUTPUT, folder / MADE)
                file.truncate(0)
                named = [_plain(each) for each in episodes]
                _append(file, _Head(dict(what), named))
                return cls(episodes, file)
            _require_same(out, found.what, what)
            made = cls([EpisodeId(*each) for each in found.episodes], file)
            made.is_new = False
            marks = list(_marks(lines[1:])) if resumes else []
            made._replay(marks)
            file.truncate(sum(map(len, lines[: 1 + len(marks)])))
        except BaseException:
            file.close()
            raise
        else:
            return made

    @property
    def is_kept(self) -> bool:
        """Whether another process could go on with anything."""
        return self._file is not None and self._marked > 0

    @property
    def episodes(self) -> Sequence[EpisodeId]:
        """All episodes of the export."""
        return self._episodes

    def done(self) -> Iterator[EpisodeId]:
        """Yield the episodes that are in the output."""
        missing = {each for each, _ in self.left_out} | {each.episode for each in self.damaged}
        return (each for each in self._episodes[: self._read] if each not in missing)

    async def records(self, store: Store) -> AsyncIterator[Trajectory]:
        """Read the records that are left; damaged ones are noted and passed over."""
        async for record in store.records(self._episodes[self._read :]):
            if isinstance(record, DamagedRecord):
                self.damaged.append(record)
                self._new_damaged.append(record)
            else:
                yield record

    def count(self, episode: EpisodeId, why: str = "") -> bool:
        """Count an episode that was read, or why it is left out; return whether to mark it."""
        while self._file is not None and self._episodes[self._read] != episode:
            self._read += 1  # a damaged one
        self._read += 1
        self.written += not why
        if why:
            self.left_out.append((episode, why))
            self._new_left_out.append((episode, why))
        return self._file is not None and self._read - self._marked >= _EACH

    def mark(self, size: int) -> None:
        """Keep what was counted, whose parts are on the disk."""
        self.size = size
        if self._file is not None:
            left_out = [(_plain(each), why) for each, why in self._new_left_out]
            damaged = [(_plain(e.episode), e.address, e.why) for e in self._new_damaged]
            mark = _Mark(self._read, self.written, self.size, left_out, damaged)
            _append(self._file, mark)
        self._marked = self._read
        self._new_left_out, self._new_damaged = [], []

    def _replay(self, marks: Sequence[_Mark]) -> None:
        for mark in marks:
            self._read, self.written, self.size = mark.episodes, mark.written, mark.size
            self.left_out += [(EpisodeId(*each), why) for each, why in mark.left_out]
            self.damaged += [DamagedRecord(EpisodeId(*e), at, why) for e, at, why in mark.damaged]
        self._marked = self._read

    def close(self, out: Path, *, is_over: bool) -> None:
        """Release the output; remove the folder if no other process is to go on."""
        if is_over:
            shutil.rmtree(part_of(out), ignore_errors=True)
        if self._file is not None:
            self._file.close()


def part_of(out: Path) -> Path:
    """Return the folder of an output that is not complete."""
    return out.with_name(f"{out.name}.part")


def claim(out: Path) -> Path:
    """Make the folder of an output, or take that of an earlier export.

    Raises UsageError for anything else of this name.
    """
    folder = part_of(out)
    with suppress(FileExistsError):  # if it is a file, the next line says so
        out.parent.mkdir(parents=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    is_own = found.st_uid == os.geteuid() and not found.st_mode & 0o022
    known = (_PROGRESS, OUTPUT, MADE)
    is_folder = stat.S_ISDIR(found.st_mode)
    if not (is_own and is_folder and all(each.name in known for each in folder.iterdir())):
        raise UsageError(
            f"{folder} exists already",
            why="an export keeps there what it has written so far, and none of yours made this",
            fix="move it away, or name another output: -O FILE",
        )
    return folder


def _remove(*paths: Path) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _plain(episode: EpisodeId) -> tuple[str, str, int]:
    return episode.job, episode.instance, episode.sample


def _append(file: BinaryIO, value: _Head | _Mark) -> None:
    file.write(msgspec.json.encode(value) + b"\n")
    file.flush()
    os.fsync(file.fileno())


def _head(lines: Sequence[bytes]) -> _Head | None:
    try:
        return msgspec.json.decode(lines[0], type=_Head)
    except (IndexError, msgspec.DecodeError):
        return None


def _marks(lines: Sequence[bytes]) -> Iterator[_Mark]:
    """Yield the marks up to the first one that can't be read."""
    with suppress(msgspec.DecodeError):
        for line in lines:
            yield msgspec.json.decode(line, type=_Mark)


def _lock(file: BinaryIO, out: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"{out} is being written by another process",
            fix="wait for its end, or name another file: -O FILE",
        ) from None
    except OSError:  # some network file systems have no locks
        return


def _require_same(out: Path, there: Mapping[str, str], now: Mapping[str, str]) -> None:
    part = part_of(out)
    for name in sorted(there.keys() | now.keys()):
        before, after = (each.get(name) or "not set" for each in (there, now))
        if before != after:
            raise UsageError(
                f"{part} is a part of another export",
                why=f"its {name} was {before}, and is {after} now",
                fix=f"name another file (-O FILE), or delete {part}",
            )
