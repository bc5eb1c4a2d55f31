"""Files of the sandbox: look them up, read them within bounds, and write them with their mode kept.

Everything needs only `/bin/sh` and the base utilities. A path is passed to a script as an argument,
never inserted into its text, so it may contain anything but NUL.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import ToolError, readable
from swe_rollout.agent.tools.face import Call
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, ExecResult

MAX_FILE_BYTES: Final = 4 << 20
LISTED_BYTES: Final = 256 << 10
"""Maximum bytes of a listing to keep; its reader sees far less."""
MAX_LINES: Final = 100_000
"""A file with more lines, such as one of only newlines, would block the event loop for seconds."""
_MAX_FOLDERS: Final = 128
_TEXT_PROBE_BYTES: Final = 8192
_IMAGES: Final = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a WebP image or a media file"),
    (b"BM", "a BMP image"),
)
_SUGGEST_S: Final = 5.0
_SUGGESTIONS: Final = 3
_MAX_COMPARED: Final = 200
_MAX_COMPARED_LENGTH: Final = 80
_LOOK: Final = """
if [ -d "$1" ]; then echo directory
elif [ -f "$1" ]; then
  echo file
  stat -L -c '%s %a' -- "$1"
  readlink -f -- "$1"
elif [ -e "$1" ] || [ -L "$1" ]; then echo other
else echo missing
fi
"""
_LIST: Final = """
cd -- "$1" && find . -mindepth 1 -maxdepth 2 -name '.*' -prune -o \\
  -type d -exec printf '%s/\\0' {} + -o -exec printf '%s\\0' {} +
"""
# Print the names in the folder, one per line, then where in the tree the same name occurs.
_NAMES: Final = 'cd -- "$1" 2>/dev/null && ls -a | head -n 2000'
_SAME_NAME: Final = """
find . -name .git -prune -o -name "$1" -print 2>/dev/null | head -n 3
"""
# Print each path with its existing part resolved and the rest unchanged.
_REAL: Final = """
for path; do
    rest=
    while [ ! -e "$path" ]; do
        rest=/$(basename -- "$path")$rest
        path=$(dirname -- "$path")
    done
    real=$(readlink -f -- "$path")
    printf '%s\\0' "${real%/}$rest"
done
"""
# As for the diff, the top of the repository is the nearest parent folder that has a .git.
_OWN_FOLDER: Final = """
top=$(pwd -P)
while [ ! -e "$top/.git" ] && [ "$top" != / ]; do top=$(dirname "$top"); done
[ -e "$top/.git" ] || top=/nowhere
for base in "${TMPDIR:-/tmp}" "${HOME:-}"; do
    [ -d "$base" ] && [ -w "$base" ] || continue
    base=$(cd -- "$base" >/dev/null && pwd -P) || continue
    case $base/ in
    "${top%/}"/*) ;;
    *)
        own=${base%/}/.agent$1
        mkdir -p -- "$own" && [ "$(cd -- "$own" >/dev/null && pwd -P)" = "$own" ] || exit 1
        printf '%s' "$own" && exit
        ;;
    esac
done
exit 1
"""


class PathKind(StrEnum):
    """The kind of a path."""

    MISSING = "missing"
    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"
    """A device, a socket, a dangling link, or no response in time."""


@dataclass(frozen=True, slots=True)
class PathInfo:
    """The kind of a path, and the properties of a file that an edit must keep."""

    path: str
    """The real path: links are followed, so that an edit does not replace a link."""
    kind: PathKind
    size_bytes: int = 0
    mode: int = 0o644


async def script(
    call: Call,
    text: str,
    *arguments: str,
    timeout_s: float = math.inf,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    max_output: int = MAX_OUTPUT_BYTES,
) -> ExecResult:
    """Run one of our scripts as `Sandbox.exec` does, within the time left for the call."""
    return await call.sandbox.exec(
        ["/bin/sh", "-c", text, "sh", *arguments],
        env=env,
        stdin=stdin,
        timeout_s=min(timeout_s, call.remaining_s),
        max_output=max_output,
    )


async def look(call: Call, path: str) -> PathInfo:
    """Look up `path`; a relative one starts at the sandbox's working directory."""
    full = posixpath.join(call.sandbox.workdir, path)
    result = await script(call, _LOOK, full)
    kind, _, rest = result.stdout.partition(b"\n")
    match kind:
        case b"file":
            return _file(full, rest)
        case b"directory" | b"missing":
            return PathInfo(full, PathKind(kind.decode()))
        case _:
            return PathInfo(full, PathKind.OTHER)


def _file(path: str, details: bytes) -> PathInfo:
    numbers, _, target = details.partition(b"\n")
    size, _, mode = numbers.partition(b" ")
    if not (size.isdigit() and re.fullmatch(rb"[0-7]+", mode)):
        return PathInfo(path, PathKind.FILE)
    try:
        real = target.removesuffix(b"\n").decode() or path
    except UnicodeDecodeError:
        # The target of the link is not UTF-8, but the given path still leads there.
        real = path
    return PathInfo(real, PathKind.FILE, int(size), int(mode, 8) & 0o777)


async def find(call: Call, name: str) -> PathInfo:
    """Look up the path in the argument `name`; a relative one starts in the working folder."""
    path = call.required(name)
    check_path(path, name)
    return await look(call, path)


def check_path(path: str, name: str) -> None:
    """Raise ToolError for a path that is invalid or absurdly deep."""
    if not path or "\0" in path:
        raise ToolError(f"{name} is empty or holds a NUL character")
    if path.count("/") > _MAX_FOLDERS:
        raise ToolError(f"{name} has over {_MAX_FOLDERS} folders")


async def need_file(call: Call, info: PathInfo, *, suggest: bool = True) -> None:
    """Raise ToolError unless the path is a regular file; `suggest` adds similar paths."""
    match info.kind:
        case PathKind.FILE:
            return
        case PathKind.DIRECTORY:
            raise ToolError(f"{info.path} is a directory")
        case PathKind.OTHER:
            raise ToolError(f"{info.path} is not a regular file, or did not answer")
        case PathKind.MISSING:
            close = await _suggestions(call, info.path) if suggest else []
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise ToolError(f"{info.path} does not exist{hint}")


async def read(call: Call, info: PathInfo, *, advice: str = "", suggest: bool = True) -> bytes:
    """Return the whole content of a file of moderate size. ToolError says why it can't be read.

    `advice` tells the policy what to do about a file that is too large.
    """
    await need_file(call, info, suggest=suggest)
    _need_moderate(info, info.size_bytes, advice)
    data = await call.sandbox.read_file(info.path)
    _need_moderate(info, len(data), advice)
    count = data.count(b"\n")
    if count > MAX_LINES:
        raise ToolError(f"{info.path} has {count} lines, over {MAX_LINES}{advice}")
    return data


def _need_moderate(info: PathInfo, size: int, advice: str) -> None:
    if size > MAX_FILE_BYTES:
        raise ToolError(f"{info.path} has {size} bytes, over {MAX_FILE_BYTES}{advice}")


def need_text(info: PathInfo, data: bytes) -> None:
    """Raise ToolError for a binary file, which begins with `data`; it names an image as one."""
    head = data[:_TEXT_PROBE_BYTES]
    if b"\0" not in head:
        return
    for magic, kind in _IMAGES:
        if head.startswith(magic):
            raise ToolError(f"{info.path} is {kind}; only text can be shown here")
    raise ToolError(f"{info.path} is a binary file of {info.size_bytes} bytes: it holds NUL bytes")


async def write(call: Call, info: PathInfo, data: bytes) -> None:
    """Replace a file's content, or create it; an existing one keeps its mode."""
    if len(data) > MAX_FILE_BYTES:
        raise ToolError(f"the file would have {len(data)} bytes, over {MAX_FILE_BYTES}")
    await call.sandbox.write_file(info.path, data, mode=info.mode)


async def remove(call: Call, path: str) -> None:
    """Remove a file. Raises ToolError if that is not possible."""
    result = await call.sandbox.exec(["rm", "-f", "--", path], timeout_s=call.remaining_s)
    if not result.ok:
        raise ToolError(f"{path} can't be removed")


async def listing(call: Call, path: str) -> list[str]:
    """List names two levels deep, sorted; directories end in `/`, and hidden ones are omitted.

    If names are missing, the last line says why.
    """
    timeout_s = call.context.timeout_s
    result = await script(call, _LIST, path, max_output=LISTED_BYTES)
    names = result.stdout.decode(errors="replace").split("\0")[:-1]
    shown = sorted(name.removeprefix("./") for name in names)
    if result.timed_out:
        return [*shown, f"[... there may be more: the listing took over {timeout_s:g} s ...]"]
    if lost := result.stdout_bytes - len(result.stdout):
        return [*shown, f"[... {len(shown)} entries of some {_total(shown, lost)} ...]"]
    if result.stderr:
        return [*shown, "[... some folders can't be read ...]"]
    return shown


def _total(shown: Sequence[str], lost_bytes: int) -> int:
    """Estimate the number of entries, assuming that names are as long as the shown ones."""
    size = sum(len(name.encode()) + 3 for name in shown) or 1
    return len(shown) + round(lost_bytes * len(shown) / size)


async def real_paths(call: Call, paths: Sequence[str]) -> list[str]:
    """Return paths with links followed; the part that does not exist stays unchanged."""
    result = await script(
        call, _REAL, *(posixpath.join(call.sandbox.workdir, path) for path in paths)
    )
    found = result.stdout.decode(errors="surrogateescape").split("\0")[:-1]
    if not result.ok or len(found) != len(paths):
        raise ToolError("the path could not be followed")
    return found


def is_within(path: str, folder: str) -> bool:
    """Return whether a path of `real_paths` is `folder` or below it."""
    # After a folder that does not exist yet, `..` leads nowhere now and elsewhere later.
    if ".." in path.split("/"):
        return False
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _paths(folders: object) -> object:
    if isinstance(folders, list | tuple) and all(isinstance(each, str) for each in folders):
        return tuple(folders)
    raise ValueError("folders must be a list of paths, such as [src, tests]")


Folders = Annotated[
    tuple[str, ...],
    BeforeValidator(_paths),
    Field(description="Folders that it may write to; all of the sandbox if empty."),
]
"""Allowed folders: a rule of conduct, which a shell can ignore."""


async def check_allowed(call: Call, folders: Sequence[str], path: str) -> None:
    """Raise ToolError if there are `folders` and the real path is in none of them."""
    if not folders:
        return
    target, *allowed = await real_paths(call, [path, *folders])
    if not any(is_within(target, each) for each in allowed):
        raise ToolError(f"{path} is not in {' or '.join(folders)}, where changes belong")


async def own_folder(call: Call, name: str = "") -> str:
    """Make the folder for files that tools keep, or `name` in it, and return its real path.

    It is in the sandbox's folder for temporary files, outside the repository and so never in the
    diff, and lives as long as the sandbox. Raises ToolError if it can't be written, or if a link
    leads elsewhere.
    """
    result = await script(call, _OWN_FOLDER, f"/{name}" if name else "")
    path = result.stdout.decode(errors="surrogateescape")
    if not result.ok or not path.startswith("/") or "\n" in path:
        raise ToolError("the sandbox has no writable folder outside the repository")
    return path


async def _suggestions(call: Call, path: str) -> list[str]:
    """Return paths that may be meant: similar names in the folder, then the same name elsewhere."""
    folder, name = posixpath.split(path)
    listed = await script(call, _NAMES, folder, timeout_s=_SUGGEST_S)
    names = [each for each in readable(listed.stdout).split("\n") if each not in {"", ".", ".."}]
    if close := await off_loop(_similar, name, names):
        found = (posixpath.join(folder, each) for each in close)
        shown = ((each, posixpath.relpath(each, call.sandbox.workdir)) for each in found)
        return [full if inside.startswith("..") else inside for full, inside in shown]
    # A pattern of `find` that matches only this name.
    literal = "".join(f"\\{each}" if each in "*?[]\\" else each for each in name)
    same = await script(call, _SAME_NAME, literal, timeout_s=_SUGGEST_S)
    return [line.removeprefix("./") for line in readable(same.stdout).split("\n") if line]


def _similar(name: str, names: Sequence[str]) -> list[str]:
    """Return names that are close to `name`, and those that differ only in their suffix."""
    stem = posixpath.splitext(name)[0]
    # The time of a comparison is quadratic in the lengths.
    short = [each for each in names if len(each) <= _MAX_COMPARED_LENGTH][:_MAX_COMPARED]
    close = get_close_matches(name[:_MAX_COMPARED_LENGTH], short, n=_SUGGESTIONS)
    close += [each for each in names if posixpath.splitext(each)[0] == stem and each not in close]
    return close[:_SUGGESTIONS]
