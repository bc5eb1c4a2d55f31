"""Read the files of Harbor's tasks, which are untrusted, from folders or a tar archive.

Nothing outside a task's folder is read, and the size of each task is bounded.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from urllib.parse import unquote

from swe_rollout.datasets.archives import DAMAGE
from swe_rollout.errors import DatasetError, Problem
from swe_rollout.store.bucket import read_object
from swe_rollout.text.paths import expanded, why_missing

CONFIG = "task.toml"
MAX_TASK_BYTES = 64 << 20
_MAX_ARCHIVE_BYTES = 4 << 30
_MOST_FILES = 10_000
_MOST_TASKS = 100_000
_DEEPEST = 32
"""How many folders may be around a task in an archive."""
_ARCHIVES = (".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A file of a task."""

    data: bytes
    executable: bool


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """All files of a task, by their paths in its folder."""

    name: str
    files: dict[str, PlainFile] = field(repr=False)


async def read_tasks(uri: str, *, base_dir: Path) -> tuple[TaskFolder | Problem, ...]:
    """Read every task at `uri`, with a problem in place of a bad one, sorted by name.

    Raises DatasetError when nothing is there or it contains no task.
    """
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)", uri)
    if scheme is not None and scheme[0].lower() != "file":
        if not uri.endswith(_ARCHIVES):
            raise _none(uri, f"in a bucket, tasks are an archive: {', '.join(_ARCHIVES)}")
        tasks = await asyncio.to_thread(_of_archive, uri, await read_object(uri))
    else:
        path = unquote(uri.removeprefix("file://")) if scheme else uri
        tasks = await asyncio.to_thread(_of_path, uri, path, base_dir)
    if not tasks:
        raise _none(uri, f"no folder in it has a {CONFIG}")
    return tuple(sorted(tasks, key=_name))


def _name(task: TaskFolder | Problem) -> str:
    return task.place if isinstance(task, Problem) else task.name


def _none(uri: str, why: str) -> DatasetError:
    return DatasetError("there are no tasks", [Problem(uri, "", why)])


def _of_path(uri: str, name: str, base_dir: Path) -> list[TaskFolder | Problem]:
    path = base_dir / expanded(name)
    if path.is_file() and path.name.endswith(_ARCHIVES):
        if path.stat().st_size > _MAX_ARCHIVE_BYTES:
            raise _none(uri, f"it is larger than {_MAX_ARCHIVE_BYTES >> 30} GiB")
        return _of_archive(uri, path.read_bytes())
    if not path.is_dir():
        raise _none(uri, why_missing(path) or f"there is no {path}")
    if (path / CONFIG).is_file():
        return [_of_folder(path.resolve())]
    folders = (each for each in path.iterdir() if (each / CONFIG).is_file())
    return [_of_folder(each) for each in folders]


def _of_folder(folder: Path) -> TaskFolder | Problem:
    files: dict[str, PlainFile] = {}
    size = 0
    for file in _walk(folder):
        name = file.relative_to(folder).as_posix()
        if file.is_symlink() or not file.is_file():
            # A link could lead to any file on this machine.
            return Problem(folder.name, name, "links and special files are not read")
        size += file.stat().st_size
        if size > MAX_TASK_BYTES or len(files) >= _MOST_FILES:
            return _too_large(folder.name)
        files[name] = PlainFile(file.read_bytes(), os.access(file, os.X_OK))
    return TaskFolder(folder.name, files)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield everything but folders; links to folders are not followed."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in {".git", "__pycache__"})
        for name in sorted(files):
            yield Path(parent) / name
        for name in folders:
            if (Path(parent) / name).is_symlink():
                yield Path(parent) / name


def _of_archive(uri: str, data: bytes) -> list[TaskFolder | Problem]:
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            return _of_members(tar)
    except (tarfile.TarError, *DAMAGE) as error:
        raise _none(uri, f"the archive can't be read: {error}") from error


def _of_members(tar: tarfile.TarFile) -> list[TaskFolder | Problem]:
    """Group files by the outermost folder with `task.toml`; a large one becomes a problem."""
    files: dict[str, PlainFile] = {}
    total = 0
    for member in tar:
        total += member.size
        if total > _MAX_ARCHIVE_BYTES or len(files) > _MOST_TASKS:
            raise ValueError(f"more than {_MAX_ARCHIVE_BYTES >> 30} GiB, or too many files")
        if member.isreg() and member.size <= MAX_TASK_BYTES:
            content = tar.extractfile(member)
            if content is not None:
                name = member.name.removeprefix("./")
                files[name] = PlainFile(content.read(), bool(member.mode & 0o111))
    heads = {name.removesuffix(CONFIG) for name in files if f"/{name}".endswith(f"/{CONFIG}")}
    groups: dict[str, dict[str, PlainFile]] = {}
    for path, file in files.items():
        above = accumulate((f"{part}/" for part in path.split("/")[:_DEEPEST]), initial="")
        head = next((each for each in above if each in heads), None)
        if head is not None and ".." not in path.split("/"):
            groups.setdefault(head, {})[path[len(head) :]] = file
    return [_of_group(head, own) for head, own in groups.items()]


def _of_group(head: str, files: dict[str, PlainFile]) -> TaskFolder | Problem:
    name = head.strip("/").rpartition("/")[2] or "task"
    large = len(files) > _MOST_FILES or sum(len(f.data) for f in files.values()) > MAX_TASK_BYTES
    return _too_large(name) if large else TaskFolder(name, files)


def _too_large(name: str) -> Problem:
    limit = f"{MAX_TASK_BYTES >> 20} MiB or {_MOST_FILES:,} files"
    return Problem(name, "", f"the task has more than {limit}")
