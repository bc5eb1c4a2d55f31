"""Paths that people write: `~`, and what an error says of one that is not there."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Final

_MOST_SEEN: Final = 2000
"""Names of a folder that are compared."""
_MOST_NAMED: Final = 5


def expanded(name: str) -> Path:
    """Return the path with `~` as a home folder; unchanged if there is no such user."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def file_meant(path: Path, endings: tuple[str, ...]) -> Path | None:
    """Return the file in the same folder whose name is most like that of `path`, if one is."""
    try:
        names = [each.name for each in islice(path.parent.iterdir(), _MOST_SEEN)]
    except OSError:
        return None
    others = [name for name in names if name.endswith(endings) and name != path.name]
    close = get_close_matches(path.name, others, n=1)
    return path.parent / close[0] if close else None


def unused_name(path: Path) -> Path:
    """Return a name beside `path` for a file that is to replace it.

    Nobody can put a link there in advance, which would lead to another file.
    """
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")


def behind_links(path: Path) -> Path:
    """Return the file that a link leads to: it is to be replaced, and not the link."""
    return path.resolve() if path.is_symlink() else path


def is_special(path: Path) -> bool:
    """Whether a device, a pipe or a socket is there, which nothing may replace."""
    return path.exists() and not (path.is_file() or path.is_dir())


def why_missing(path: Path) -> str:
    """Return the first folder above `path` that does not exist; empty if all of them exist."""
    folder = path.absolute().parent
    above = (*reversed(folder.parents), folder)
    try:
        missing = next((each for each in above if not each.exists()), None)
    except OSError:  # a name that no folder can have
        return ""
    return "" if missing is None else f"the folder {missing} does not exist"


def instead(name: str, known: Iterable[str]) -> str:
    """Suggest a similar known name, or list a few; empty if there are none."""
    names = sorted(known)
    if close := get_close_matches(name, names, n=1):
        return f"did you mean {close[0]}?"
    return f"it has {', '.join(names[:_MOST_NAMED])}" if names else ""
