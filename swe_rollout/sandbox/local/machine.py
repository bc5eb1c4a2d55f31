"""Choose what a sandbox sees of this machine: programs, their libraries, and one Python.

This is an allow-list, because a task's own package may exist anywhere else, in a newer release with
the fix: among the packages of Python, Node or Ruby, in other interpreters, in `ensurepip`'s wheels,
in tools that vendor their dependencies. A task's dependencies come with its image. Used by
`bubblewrap`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

EMPTY_FOLDER, EMPTY_FILE = "empty", "empty-file"
"""Mounted over hidden paths; relative to the folder in which bubblewrap starts."""

_PROGRAMS = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/include")
_LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec", "/usr/share")
_ROOT_LIBRARIES = ("/lib", "/lib32", "/lib64", "/libx32")
# Names of /usr/lib, /usr/libexec and /usr/share: of the C library, compilers, git, Perl, Python's
# standard library, and data that many programs read. Each costs a mount in every start.
_SHOWN = re.compile(
    r"""
    .*-linux-(gnu|musl).* | gconv | locale | terminfo | zoneinfo | ca-certificates | misc
    | gcc | gcc-cross | clang | llvm-?[0-9.]* | rustlib | jvm | go(-[0-9.]+)?
    | cmake(-[0-9.]+)? | pkgconfig | aclocal(-[0-9.]+)? | autoconf | automake-[0-9.]+ | libtool
    | bison | m4 | git-core | perl | perl-base | python3\.[0-9]+ | coreutils | getconf | awk | gawk
    | ssl | openssl | engines-.* | ossl-modules
    """,
    re.VERBOSE,
)
# Anywhere else, these hold packages.
_PACKAGES = re.compile(
    r"""
    (site|dist)-packages | _bundled | wheeldata | python-wheels
    | node_modules | nodejs | gems | vendor_ruby | perl5
    | (giscanner|gobject-introspection) | pkgs | conda-meta | .*\.(whl|egg|dist-info|egg-info|conda)
    """,
    re.VERBOSE,
)
_ARCHIVES = re.compile(r".*\.(whl|egg|conda)")
"""Package archives: a folder that contains one is hidden as a whole."""
_FLAT = 64
"""More files than this directly in a folder are shared libraries: show it, and hide the rest."""
_OF_PYTHON = frozenset({"lib-dynload", "__pycache__", "__phello__", "test"})


@dataclass(frozen=True, slots=True)
class Cover:
    """A path inside a shown folder that stays hidden."""

    path: Path
    is_folder: bool


def interpreter_prefix() -> Path:
    """Return the folder where this Python is installed, without its virtual environment."""
    return Path(sys.base_prefix).resolve()


@cache
def shown() -> tuple[str, ...]:
    """Return the bubblewrap arguments that show this machine's programs read-only."""
    words = [*_programs(), *_system_libraries(), *_interpreter(interpreter_prefix())]
    return tuple(words)


def _programs() -> Iterator[str]:
    for name in _PROGRAMS:
        yield from _as_it_is(Path(name))


def _system_libraries() -> Iterator[str]:
    for name in (*_LIBRARIES, *_ROOT_LIBRARIES):
        folder = Path(name)
        if folder.is_symlink():
            yield from _as_it_is(folder)
        elif folder.is_dir():
            yield from _selected(folder)


def _selected(folder: Path) -> Iterator[str]:
    """Show the allowed entries of a folder of libraries."""
    entries = sorted(folder.iterdir())
    if sum(not entry.is_dir() for entry in entries) > _FLAT:
        yield from ("--ro-bind", str(folder), str(folder))
        kept = [entry for entry in entries if _SHOWN.fullmatch(entry.name)]
        for entry in entries:
            if entry not in kept and entry.is_dir() and not entry.is_symlink():
                yield from _covered(Cover(entry, is_folder=True))
    else:
        kept = [entry for entry in entries if _is_shown(entry, folder)]
        for entry in kept:
            yield from _as_it_is(entry)
    for entry in kept:
        yield from _without_packages(entry)


def _is_shown(entry: Path, folder: Path) -> bool:
    if entry.name == "perl5":
        # Perl's own modules, except where they have a folder of their own.
        return not (folder / "perl").exists()
    is_loader = str(folder) in _ROOT_LIBRARIES or entry.name.startswith("ld-")
    return (is_loader and not entry.is_dir()) or _SHOWN.fullmatch(entry.name) is not None


def _interpreter(prefix: Path) -> Iterator[str]:
    """Show the programs, libraries and headers of one Python, without its installed packages.

    Below /usr, everything but its standard library is shown anyway.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if prefix == Path("/usr"):
        return
    yield from ("--tmpfs", str(prefix))
    for name in ("python", "python3", version):
        yield from _as_it_is(prefix / "bin" / name)
    yield from _as_it_is(prefix / "include" / version)
    for library in (prefix / "lib", prefix / "lib64"):
        if library.is_dir() and not library.is_symlink():
            yield from _of_interpreter(library, version)
    # Commands are looked up there first: none may be added.
    yield from ("--remount-ro", str(prefix))


def _of_interpreter(library: Path, version: str) -> Iterator[str]:
    yield from ("--ro-bind", str(library), str(library))
    for entry in sorted(library.iterdir()):
        if entry.name == version:
            yield from _without_packages(entry)
        elif entry.is_dir() and not entry.is_symlink():
            yield from _covered(Cover(entry, is_folder=True))
        elif _PACKAGES.fullmatch(entry.name):
            yield from _covered(Cover(entry, is_folder=False))


def _without_packages(folder: Path) -> Iterator[str]:
    if re.fullmatch(r"python3\.[0-9]+", folder.name):
        yield from _strangers(folder)
    for cover in find_packages(folder):
        yield from _covered(cover)


def _strangers(standard_library: Path) -> Iterator[str]:
    """Hide folders that are not part of the standard library."""
    for entry in sorted(standard_library.iterdir()):
        is_ours = entry.name in sys.stdlib_module_names | _OF_PYTHON or entry.name.startswith(
            "config-"
        )
        if entry.is_dir() and not (is_ours or _PACKAGES.fullmatch(entry.name)):
            yield from _covered(Cover(entry, is_folder=True))


def find_packages(folder: Path) -> Iterator[Cover]:
    """Find package folders and archives, at any depth; links are not followed."""
    if folder.is_symlink():
        return
    todo = [folder]
    while todo:
        current = todo.pop()
        try:
            entries = sorted(os.scandir(current), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            if _ARCHIVES.fullmatch(entry.name) and not is_folder and current != folder:
                yield Cover(current, is_folder=True)
                break
            if _PACKAGES.fullmatch(entry.name):
                yield Cover(Path(entry.path), is_folder)
            elif is_folder:
                todo.append(Path(entry.path))


def _as_it_is(path: Path) -> Iterator[str]:
    if path.is_symlink():
        yield from ("--symlink", str(path.readlink()), str(path))
    elif path.exists():
        yield from ("--ro-bind", str(path), str(path))


def _covered(cover: Cover) -> Iterator[str]:
    if not cover.path.is_symlink():
        yield from ("--ro-bind", EMPTY_FOLDER if cover.is_folder else EMPTY_FILE, str(cover.path))
