"""Read the manifest of a bundle, `bundle.yaml`, and pack its folder into one file.

The file travels with the job under its digest. It is JSON with base64, not an archive format whose
reader would have to be trusted. The same folder gives the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import yaml
from pydantic import Field, StringConstraints, ValidationError

from swe_rollout.agent.tools.declared import DeclaredSpec, declared_spec
from swe_rollout.errors import UsageError
from swe_rollout.extension import ExtensionError
from swe_rollout.spec.model import Model

SUFFIX: Final = ".bundle"
MANIFEST: Final = "bundle.yaml"
FILE: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}){0,7}$"
"""Pattern of a bundle's file: a relative path without hidden names."""
MAX_TOOLS: Final = 64
_MAX_MANIFEST_BYTES: Final = 256 << 10
_MAX_VALUES: Final = 50_000
_NO_ARGUMENTS: Final = {"type": "object", "properties": {}}
MAX_FILES: Final = 256
MAX_BYTES: Final = 8 << 20
"""Total size of a bundle's files; each episode uploads them."""
_IGNORED: Final = frozenset({"__pycache__", "node_modules"})


class BundledTool(Model):
    """One tool: its description for the policy, and the program that it calls."""

    name: str
    description: str
    file: Annotated[str, StringConstraints(pattern=FILE)] | None = None
    """The program; by default the file with the tool's name."""
    parameters: dict[str, Any] = Field(default_factory=lambda: dict(_NO_ARGUMENTS))
    """The JSON schema of its arguments."""
    ends_episode: bool = False
    """Whether the policy hands in its work by calling it."""

    @property
    def program(self) -> str:
        """The path of the program in the bundle."""
        return self.file or self.name

    def spec(self) -> DeclaredSpec:
        """Return the tool as the policy sees it. Raises ValueError if it can't be offered."""
        return declared_spec(
            self.name, self.description, self.parameters, ends_episode=self.ends_episode
        )


class Manifest(Model):
    """The tools of a bundle, in the order they are offered."""

    tools: Annotated[tuple[BundledTool, ...], Field(min_length=1, max_length=MAX_TOOLS)]


def read_manifest(text: bytes) -> Manifest:
    """Read `bundle.yaml`. Raises ValueError, with the place, if it is invalid."""
    if len(text) > _MAX_MANIFEST_BYTES:
        raise ValueError(f"{MANIFEST} has over {_MAX_MANIFEST_BYTES >> 10} KiB")
    try:
        value = yaml.safe_load(text.decode("utf-8-sig"))
        _require_small(value)
        found = Manifest.model_validate(value)
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{MANIFEST} is no YAML: {str(error).partition(chr(10))[0]}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the top"
        raise ValueError(f"{MANIFEST}: {place}: {first['msg']}") from error
    for tool in found.tools:
        tool.spec()
    return found


def _require_small(value: object) -> None:
    """Raise ValueError for YAML whose aliases expand to more than fits into memory."""
    left, seen = [value], 0
    while left:
        seen += 1
        if seen > _MAX_VALUES:
            raise ValueError(f"{MANIFEST} stands for over {_MAX_VALUES} values")
        match left.pop():
            case dict() as mapping:
                left += mapping.values()
            case list() as items:
                left += items


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
