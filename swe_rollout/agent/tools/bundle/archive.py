"""Pack the folder of a bundle into one file, which travels with the job under its digest.

The packed form is JSON with base64, not an archive format whose reader would have to be trusted.
The same folder gives the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from swe_rollout.agent.tools.bundle.manifest import FILE, MANIFEST, Manifest, read_manifest
from swe_rollout.errors import UsageError
from swe_rollout.extension import ExtensionError

SUFFIX: Final = ".bundle"
MAX_FILES: Final = 256
MAX_BYTES: Final = 8 << 20
"""Total size of a bundle's files; each episode uploads them."""
_IGNORED: Final = frozenset({"__pycache__", "node_modules"})


class PackedFile(msgspec.Struct, frozen=True):
    """A file of a bundle."""

    path: str
    """Relative path, with `/`."""
    executable: bool
    content: bytes


class _Packed(msgspec.Struct, frozen=True):
    files: tuple[PackedFile, ...]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that can be put into a sandbox."""

    manifest: Manifest
    files: tuple[PackedFile, ...]


_BUNDLES: Final[dict[str, Bundle]] = {}
"""The bundles of this process's jobs, by SHA-256."""


def pack(folder: Path) -> bytes:
    """Pack a folder. Raises UsageError, with the reason, if it is not a bundle."""
    try:
        files = tuple(sorted(_files(folder), key=lambda file: file.path))
        data = msgspec.json.encode(_Packed(files))
        _read(data)
    except OSError as error:
        where = error.filename or folder
        raise UsageError(f"{where} can't be read", why=str(error.strerror)) from error
    except ValueError as error:
        raise UsageError(
            f"{folder} is no bundle of tools",
            why=str(error),
            fix="docs/how-to/extend/tool-bundles.md shows one",
        ) from error
    return data


def register(data: bytes) -> None:
    """Register a packed bundle in this process. Raises ExtensionError if it is not a bundle."""
    try:
        _BUNDLES[hashlib.sha256(data).hexdigest()] = _read(data)
    except ValueError as error:
        raise ExtensionError(
            "a bundle of tools can't be read",
            why=str(error),
            fix="start the job again from its folder",
        ) from error


def registered(sha256: str) -> Bundle | None:
    """Return the bundle with this digest, if it came with a job."""
    return _BUNDLES.get(sha256)


def _files(folder: Path) -> Iterator[PackedFile]:
    """Read the files. Raises ValueError for one that can't be packed, or too many or large ones."""
    count = size = 0
    for path in _paths(folder):
        name = path.relative_to(folder).as_posix()
        if not re.fullmatch(FILE, name):
            raise ValueError(f"a file can't be named {name!r}")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
            executable = bool(os.fstat(file.fileno()).st_mode & 0o111)
        count, size = count + 1, size + len(content)
        if count > MAX_FILES or size > MAX_BYTES:
            raise ValueError(f"it has over {MAX_FILES} files, or over {MAX_BYTES >> 20} MiB")
        yield PackedFile(name, executable, content)


def _paths(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in _IGNORED:
            continue
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ValueError(f"{path.name} is a link or no regular file")
        if path.is_dir():
            yield from _paths(path)
        else:
            yield path


def _read(data: bytes) -> Bundle:
    """Read a packed bundle. Raises ValueError if it is not one."""
    files = msgspec.json.decode(data, type=_Packed).files
    by_path = {file.path: file for file in files}
    if any(not re.fullmatch(FILE, path) for path in by_path) or len(by_path) != len(files):
        raise ValueError("its files have invalid names")
    if MANIFEST not in by_path:
        raise ValueError(f"it has no {MANIFEST}")
    manifest = read_manifest(by_path[MANIFEST].content)
    programs = {tool.program for tool in manifest.tools}
    if missing := sorted(programs - by_path.keys()):
        raise ValueError(f"it has no file {missing[0]}, which {MANIFEST} names")
    return Bundle(manifest, tuple(_executable(files, programs)))


def _executable(files: Iterable[PackedFile], programs: set[str]) -> Iterator[PackedFile]:
    """Yield the files for a sandbox, with programs marked executable."""
    for file in files:
        if file.path != MANIFEST:
            is_program = file.executable or file.path in programs
            yield msgspec.structs.replace(file, executable=is_program)
