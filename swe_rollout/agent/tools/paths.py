"""Look up paths in a sandbox, with `/bin/sh` and the base utilities alone."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from enum import StrEnum

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.sandbox.base import Sandbox

# Arguments, never text in the script: a path may hold anything but NUL.
_LOOK = """
if [ -d "$1" ]; then echo directory
elif [ -f "$1" ]; then
  echo file
  stat -L -c '%s %a' -- "$1"
  readlink -f -- "$1"
elif [ -e "$1" ] || [ -L "$1" ]; then echo other
else echo missing
fi
"""
_LIST = """
cd -- "$1" && find . -mindepth 1 -maxdepth 2 -name '.*' -prune -o \\
  -type d -exec printf '%s/\\0' {} + -o -exec printf '%s\\0' {} +
"""
LISTED_BYTES = 256 << 10
"""Of a listing, whose reader sees far less."""


class PathKind(StrEnum):
    """The kind of a path."""

    MISSING = "missing"
    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"
    """A device, a socket, a link to nowhere, or no response in time."""


@dataclass(frozen=True, slots=True)
class PathInfo:
    """A path's kind, and for a file the properties that an edit must keep."""

    path: str
    """The real path of the content: links are followed, so that an edit does not replace one."""
    kind: PathKind
    size_bytes: int = 0
    mode: int = 0o644


async def look(sandbox: Sandbox, path: str, *, timeout_s: float) -> PathInfo:
    """Look up `path`; a relative one starts at the sandbox's working directory."""
    full = posixpath.join(sandbox.workdir, path)
    result = await sandbox.exec(["/bin/sh", "-c", _LOOK, "sh", full], timeout_s=timeout_s)
    kind, _, rest = result.stdout.partition(b"\n")
    match kind:
        case b"file":
            return _file(full, rest)
        case b"directory":
            return PathInfo(full, PathKind.DIRECTORY)
        case b"missing":
            return PathInfo(full, PathKind.MISSING)
        case _:
            return PathInfo(full, PathKind.OTHER)


async def listing(sandbox: Sandbox, path: str, *, timeout_s: float) -> list[str]:
    """List names two levels down, sorted; directories end in `/`; hidden ones are left out.

    Where that is not all of them, the last line says why.
    """
    result = await sandbox.exec(
        ["/bin/sh", "-c", _LIST, "sh", path], timeout_s=timeout_s, max_output=LISTED_BYTES
    )
    names = result.stdout.decode(errors="replace").split("\0")[:-1]
    shown = sorted(name.removeprefix("./") for name in names)
    if result.timed_out:
        return [*shown, f"[... there may be more: the listing took over {timeout_s:g} s ...]"]
    if lost := result.stdout_bytes - len(result.stdout):
        return [*shown, f"[... {len(shown)} entries of some {_total(shown, lost)} ...]"]
    if result.stderr:
        return [*shown, "[... some folders can't be read ...]"]
    return shown


async def remove(sandbox: Sandbox, path: str, *, timeout_s: float) -> None:
    """Remove a file; ToolError where that is not possible."""
    result = await sandbox.exec(["rm", "-f", "--", path], timeout_s=timeout_s)
    if not result.ok:
        raise ToolError(f"{path} can't be removed")


def _total(shown: list[str], lost_bytes: int) -> int:
    """Estimate how many entries there are, of names as long as those that are shown."""
    size = sum(len(name.encode()) + 3 for name in shown) or 1
    return len(shown) + round(lost_bytes * len(shown) / size)


def _file(path: str, details: bytes) -> PathInfo:
    numbers, _, target = details.partition(b"\n")
    size, _, mode = numbers.partition(b" ")
    if not (size.isdigit() and re.fullmatch(rb"[0-7]+", mode)):
        return PathInfo(path, PathKind.FILE)
    try:
        real = target.removesuffix(b"\n").decode() or path
    except UnicodeDecodeError:
        # A link to a name that is not UTF-8: the path as given still leads there.
        real = path
    return PathInfo(real, PathKind.FILE, int(size), int(mode, 8) & 0o777)
