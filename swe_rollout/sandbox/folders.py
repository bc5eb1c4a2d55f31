"""Folders in a sandbox without a git repository: write files, and collect what has changed.

The image may have neither git nor Python. Files are listed with their inodes and change times,
which no program can set freely, before and after the agent; the first list stays in this process.
"""

from __future__ import annotations

import asyncio
import base64
import posixpath
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from swe_rollout.errors import SandboxError, TaskError, gather_all
from swe_rollout.sandbox.base import ExecResult, Sandbox
from swe_rollout.sandbox.delta import Entry, Kind, write
from swe_rollout.sandbox.repository import Patch
from swe_rollout.sandbox.script import read_script
from swe_rollout.text.formatting import format_size
from swe_rollout.types.instance import FolderTask, TaskFile

TESTS = "/tests"
SOLUTION = "/solution"
LOGS = "/logs"
MAX_DELTA_BYTES = 16 << 20
"""Largest total size of the changed files, and of the delta's text."""
_MAX_LISTING_BYTES = 64 << 20
_MOST_CHANGED = 20_000
_AT_A_TIME = 16
_LIST_S = 300.0
_LINE = re.compile(rb"([0-9a-f]+) (\d+) (-?\d+) (-?\d+) (\d+) (/.*)", re.DOTALL)
_PATH_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _File:
    """The state of a file. Files with equal states have the same content."""

    mode: int
    size: int
    modified: int
    changed: int
    inode: int


@dataclass(frozen=True, slots=True)
class FolderState:
    """The files of some folders at one time."""

    roots: tuple[str, ...]
    files: Mapping[str, _File]


async def prepare(sandbox: Sandbox, task: FolderTask) -> FolderState:
    """Write the task's files, remove the image's tests and solutions, and list what is there."""
    await remove(sandbox, TESTS, SOLUTION, f"{LOGS}/verifier")
    await lay_out(sandbox, task.start)
    listing = await _list(sandbox, task.kept)
    state = _state(task.kept, listing)
    if isinstance(state, str):
        raise TaskError(
            "the files of the image can't be listed",
            why=state,
            fix="use an image with find and stat, and keep fewer paths",
            retryable=False,
        )
    now = int(listing.stdout.partition(b"\n")[0])
    if any(file.changed >= now for file in state.files.values()):
        # A change in the same second would not show.
        await _run(sandbox, ["sleep", "1.1"])
    return state


async def diff(sandbox: Sandbox, base: FolderState) -> Patch:
    """Return the changes since `base` as a delta, after ending every remaining process."""
    await sandbox.end_processes()
    now = _state(base.roots, await _list(sandbox, base.roots))
    if isinstance(now, str):
        return Patch(problem=now)
    changed = {path: file for path, file in now.files.items() if base.files.get(path) != file}
    changed = {path: file for path, file in changed.items() if not _same_folder(base, path, file)}
    # A folder replaces a file: remove the file first.
    replaced = {path for path, file in changed.items() if stat.S_ISDIR(file.mode)}
    gone = [path for path in base.files if path not in now.files or path in replaced]
    size = sum(file.size for file in changed.values() if stat.S_ISREG(file.mode))
    if size > MAX_DELTA_BYTES or len(changed) + len(gone) > _MOST_CHANGED:
        problem = f"{len(changed) + len(gone)} files have changed, {format_size(size)}; "
        return Patch(problem=f"{problem}{_MOST_CHANGED} and {MAX_DELTA_BYTES >> 20} MiB are taken")
    try:
        entries = await _read(sandbox, changed)
    except OSError as error:
        return Patch(problem=f"a changed file can't be read: {error}")
    entries += [Entry(path[1:], Kind.GONE) for path in gone]
    text = await asyncio.to_thread(write, entries)
    if len(text.encode()) > MAX_DELTA_BYTES:
        return Patch(problem=f"the changes are larger than {MAX_DELTA_BYTES >> 20} MiB")
    return Patch(text)


async def remove(sandbox: Sandbox, *paths: str) -> None:
    """Remove what is at these paths. Mount points stay, empty. Raises SandboxError."""
    await _run(sandbox, _command("remove_folders", *paths))


async def make_empty(sandbox: Sandbox, *paths: str) -> None:
    """Create these folders, or empty them. Raises SandboxError."""
    await _run(sandbox, _command("clear_folders", *paths))


async def make(sandbox: Sandbox, *paths: str) -> None:
    """Create these folders where they don't exist. Raises SandboxError."""
    await _run(sandbox, ["mkdir", "-p", "--", *paths])


async def lay_out(sandbox: Sandbox, task_files: Iterable[TaskFile]) -> None:
    """Write a task's files over existing ones. Raises TaskError when one can't be written."""
    for file in task_files:
        data = base64.b64decode(file.content)
        try:
            await sandbox.write_file(file.path, data, mode=0o755 if file.executable else 0o644)
        except OSError as error:
            raise TaskError(
                f"{file.path} can't be written", why=str(error), retryable=False
            ) from error


async def apply(sandbox: Sandbox, entries: Iterable[Entry], task: FolderTask) -> str:
    """Apply a delta in a clean sandbox; return why that is impossible, or an empty text."""
    entries = tuple(entries)
    for entry in entries:
        if not _is_inside(entry, task.kept):
            return f"/{entry.path} lies outside of what is kept: {', '.join(task.kept)}"
    removed = [each for each in entries if each.kind is not Kind.FOLDER]
    made = [each for each in entries if each.kind is Kind.FOLDER]
    return (
        await _refused(sandbox, ["xargs", "-0", "rm", "-rf", "--"], _names(removed))
        or await _refused(sandbox, ["xargs", "-0", "mkdir", "-p", "--", "/"], _names(made))
        or await _write_files(sandbox, entries)
        or await _make_links(sandbox, entries)
    )


def _names(entries: Iterable[Entry]) -> bytes:
    return b"".join(b"/%s\0" % each.path.encode(errors="surrogateescape") for each in entries)


async def _write_files(sandbox: Sandbox, entries: Iterable[Entry]) -> str:
    slots = asyncio.Semaphore(_AT_A_TIME)
    refusal = ""

    async def make(entry: Entry) -> None:
        async with slots:
            mode = 0o755 if entry.kind is Kind.PROGRAM else 0o644
            await sandbox.write_file(f"/{entry.path}", entry.data, mode=mode)

    try:
        regular = (Kind.FILE, Kind.PROGRAM)
        await gather_all([make(entry) for entry in entries if entry.kind in regular])
    except OSError as error:
        refusal = f"a file can't be written: {error}"
    return refusal


async def _make_links(sandbox: Sandbox, entries: Iterable[Entry]) -> str:
    """Create the links last, so that nothing is written through them."""
    script = 'mkdir -p -- "${1%/*}/" && ln -s -- "$2" "$1"'
    for entry in entries:
        if entry.kind is Kind.LINK:
            target = entry.data.decode(errors="surrogateescape")
            command = ["/bin/sh", "-c", script, "sh", f"/{entry.path}", target]
            if refusal := await _refused(sandbox, command):
                return refusal
    return ""


async def _refused(sandbox: Sandbox, command: list[str], stdin: bytes = b"") -> str:
    """Run a step whose failure is the delta's fault; return why it failed, or an empty text."""
    result = await sandbox.exec(command, cwd="/", stdin=stdin, timeout_s=_LIST_S)
    if result.ok:
        return ""
    return result.stderr.decode(errors="replace").strip()[-500:] or f"exit code {result.exit_code}"


def _is_inside(entry: Entry, kept: Iterable[str]) -> bool:
    path = f"/{entry.path}"
    if posixpath.normpath(path) != path or "\0" in path or len(path) > _PATH_BYTES:
        return False
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in kept)


def _same_folder(base: FolderState, path: str, file: _File) -> bool:
    """Whether the path was a folder before as well: its contents are listed separately."""
    before = base.files.get(path)
    return stat.S_ISDIR(file.mode) and before is not None and stat.S_ISDIR(before.mode)


async def _read(sandbox: Sandbox, changed: Mapping[str, _File]) -> list[Entry]:
    """Read the changed files; pipes, sockets and devices don't count as work."""
    slots = asyncio.Semaphore(_AT_A_TIME)
    holds = {posixpath.dirname(path) for path in changed}

    async def one(path: str, file: _File) -> Entry | None:
        if stat.S_ISREG(file.mode):
            async with slots:
                data = await sandbox.read_file(path, max_bytes=MAX_DELTA_BYTES)
            return Entry(path[1:], Kind.PROGRAM if file.mode & 0o111 else Kind.FILE, data)
        if stat.S_ISLNK(file.mode):
            async with slots:
                link = await sandbox.exec(["readlink", "-n", "--", path], cwd="/")
            return Entry(path[1:], Kind.LINK, link.stdout)
        if stat.S_ISDIR(file.mode) and path not in holds:
            return Entry(path[1:], Kind.FOLDER)
        return None

    found = await asyncio.gather(*(one(path, file) for path, file in changed.items()))
    return [entry for entry in found if entry is not None]


async def _list(sandbox: Sandbox, roots: Iterable[str]) -> ExecResult:
    return await sandbox.exec(
        _command("list_files", *roots),
        cwd="/",
        timeout_s=_LIST_S,
        max_output=_MAX_LISTING_BYTES,
    )


def _command(script: str, *arguments: str) -> list[str]:
    return ["/bin/sh", "-c", read_script(script), "sh", *arguments]


def _state(roots: tuple[str, ...], result: ExecResult) -> FolderState | str:
    """Parse a list of files; return why it is malformed."""
    if not result.ok or result.truncated:
        text = (result.stderr or result.stdout[-200:]).decode(errors="replace").strip()
        why = "there are too many files" if result.truncated or result.timed_out else text
        return f"the files can't be listed: {why or f'exit code {result.exit_code}'}"
    found: dict[str, _File] = {}
    name = ""
    file = _File(0, 0, 0, 0, 0)
    for line in result.stdout.split(b"\n")[1:-1]:
        match = _LINE.fullmatch(line)
        if match is None and not name:
            return "the files can't be listed: what find and stat print is no list"
        if match is None:
            # The rest of a name that contains a line break.
            found.pop(name, None)
            name += "\n" + line.decode(errors="surrogateescape")
        else:
            name = match[6].decode(errors="surrogateescape")
            mode, numbers = int(match[1], 16), [int(each) for each in match.groups()[1:5]]
            file = _File(mode, *numbers)
        found[name] = file
    return FolderState(roots, found)


async def _run(sandbox: Sandbox, command: list[str]) -> None:
    if why := await _refused(sandbox, command):
        raise SandboxError(f"{command[0]} failed in the sandbox", why=why)
