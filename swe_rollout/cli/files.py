"""Write the files that a user asked for, reporting failures as the user's errors, not bugs."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swe_rollout.errors import UsageError
from swe_rollout.text.paths import behind_links, is_special, why_missing

_PAGE = b"<!doctype html"
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS})
"""What the machine says of a path that a user may not use, even to look whether it is there."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise UsageError if the block can't write the file, unless it exists already."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise UsageError(
            f"{path} can't be written", why=_reason(path, error), fix=_fix(path)
        ) from error


def refused_path(error: BaseException) -> UsageError | None:
    """Return the error for a path that the machine refuses, or None for any other error."""
    if not isinstance(error, OSError) or error.errno not in _REFUSED or error.filename is None:
        return None
    return UsageError(
        f"{error.filename} can't be used",
        why=error.strerror or str(error),
        fix="give this user access to it, or name another path",
    )


def require_new(path: Path, *, overwrite: bool) -> Path:
    """Return where a new file is to be written: `path`, or what it links to.

    Raises UsageError for anything else that is there, and for a file unless it may be overwritten.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder", fix=f"name a file in it: -O {path / 'FILE'}")
    if is_special(path) or str(path) == "-":
        raise UsageError(
            f"{path} is no file", why="the output is a file of its own", fix="name one: -O FILE"
        )
    if path.is_file() and not overwrite:
        raise UsageError(
            f"{path} exists already",
            why="it may be something else than an earlier export",
            fix="name another file (-O FILE), or replace this one by --overwrite",
        )
    return behind_links(path)


def require_page(path: Path) -> None:
    """Raise UsageError for an existing file other than a page, as `view` only replaces pages."""
    if str(path) == "-":
        raise UsageError("- is no file", why="a page is a file of its own", fix="name one: -O FILE")
    if not path.is_file():
        return
    with path.open("rb") as file:
        begins = file.read(len(_PAGE)).lower()
    if begins and begins != _PAGE:
        raise UsageError(
            f"{path} exists already, and is no page",
            why="only an earlier page is replaced",
            fix="name another file: -O page.html",
        )


def _fix(path: Path) -> str:
    if path.is_dir():
        return f"name a file in it: -O {path / 'FILE'}"
    if why_missing(path):
        return f"mkdir -p {path.parent}, or name a file in a folder that exists"
    return "name another file, in a folder that you may write to"


def _reason(path: Path, error: OSError) -> str:
    if missing := why_missing(path):
        return missing
    return "it is a folder" if path.is_dir() else error.strerror or str(error)
