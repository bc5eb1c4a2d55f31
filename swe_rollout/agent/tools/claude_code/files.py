"""Files of the sandbox: look one up, read it within bounds, and write it back as it was."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from difflib import get_close_matches

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import ToolError, readable
from swe_rollout.agent.tools.claude_code.call import Call
from swe_rollout.agent.tools.paths import PathInfo, PathKind, look

MAX_FILE_BYTES = 4 << 20
_MAX_LINES = 100_000
_MAX_FOLDERS = 128
_SUGGEST_S = 5.0
_SUGGESTIONS = 3
_MAX_COMPARED = 200
_MAX_COMPARED_LENGTH = 80
# Names of the folder, one a line, then where in the tree the same name occurs.
_NAMES = 'cd -- "$1" 2>/dev/null && ls -a | head -n 2000'
_SAME_NAME = """
find . -name .git -prune -o -name "$1" -print 2>/dev/null | head -n 3
"""

# The real path of as much of each path as exists, and the rest as it was given.
_REAL = """
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


async def find(call: Call, name: str) -> PathInfo:
    """Look up the path that an argument names; a relative one starts in the working folder."""
    path = call.required(name)
    check_path(path, name)
    return await look(call.sandbox, path, timeout_s=call.remaining_s)


def check_path(path: str, name: str) -> None:
    """Raise ToolError for a path that no file can have, and for one of absurd depth."""
    if not path or "\0" in path:
        raise ToolError(f"{name} is empty or holds a NUL character")
    if path.count("/") > _MAX_FOLDERS:
        raise ToolError(f"{name} has over {_MAX_FOLDERS} folders")


async def read(call: Call, info: PathInfo) -> bytes:
    """Return the whole content of a file of moderate size; ToolError says why there is none."""
    await need_file(call, info)
    if info.size_bytes > MAX_FILE_BYTES:
        raise ToolError(f"{info.path} has {info.size_bytes} bytes, over {MAX_FILE_BYTES}")
    data = await call.sandbox.read_file(info.path)
    count = data.count(b"\n")
    if len(data) > MAX_FILE_BYTES or count > _MAX_LINES:
        raise ToolError(
            f"{info.path} is too large to edit: {len(data)} bytes in {count} lines; at most "
            f"{MAX_FILE_BYTES} and {_MAX_LINES}"
        )
    return data


async def need_file(call: Call, info: PathInfo) -> None:
    """Raise ToolError unless the path is a regular file."""
    match info.kind:
        case PathKind.FILE:
            return
        case PathKind.DIRECTORY:
            raise ToolError(f"{info.path} is a directory")
        case PathKind.OTHER:
            raise ToolError(f"{info.path} is not a regular file, or did not answer")
        case PathKind.MISSING:
            close = await _suggestions(call, info.path)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise ToolError(f"{info.path} does not exist{hint}")


async def write(call: Call, info: PathInfo, data: bytes) -> None:
    """Replace a file's content, or create it; an existing one keeps its mode."""
    if len(data) > MAX_FILE_BYTES:
        raise ToolError(f"the file would have {len(data)} bytes, over {MAX_FILE_BYTES}")
    await call.sandbox.write_file(info.path, data, mode=info.mode)


async def need_file_or_nothing(call: Call, info: PathInfo) -> None:
    """Raise ToolError when a file can't be written because something else has the path."""
    if info.kind is not PathKind.MISSING:
        await need_file(call, info)


async def real_paths(call: Call, paths: Sequence[str]) -> list[str]:
    """Return where paths lead, links followed; what is missing of one stays as it was given."""
    full = [posixpath.join(call.sandbox.workdir, path) for path in paths]
    result = await call.sandbox.exec(
        ["/bin/sh", "-c", _REAL, "sh", *full], timeout_s=call.remaining_s
    )
    found = result.stdout.decode(errors="surrogateescape").split("\0")[:-1]
    if not result.ok or len(found) != len(paths):
        raise ToolError("the path could not be followed")
    return found


def is_within(path: str, folder: str) -> bool:
    """Whether a path of `real_paths` is a folder or below it."""
    # Behind a folder that does not exist yet, `..` leads nowhere now, and elsewhere later.
    if ".." in path.split("/"):
        return False
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def shown_path(call: Call, path: str) -> str:
    """Return a path as the policy would write it: relative to the working folder if below it."""
    inside = posixpath.relpath(path, call.sandbox.workdir)
    return path if inside.startswith("..") else inside


async def _suggestions(call: Call, path: str) -> list[str]:
    """Return paths that may have been meant: neighbours of a similar name, then the same name."""
    folder, name = posixpath.split(path)
    timeout_s = min(_SUGGEST_S, call.remaining_s)
    listed = await call.sandbox.exec(["/bin/sh", "-c", _NAMES, "sh", folder], timeout_s=timeout_s)
    names = [each for each in readable(listed.stdout).split("\n") if each not in {"", ".", ".."}]
    if close := await off_loop(_similar, name, names):
        return [shown_path(call, posixpath.join(folder, each)) for each in close]
    found = await call.sandbox.exec(
        ["/bin/sh", "-c", _SAME_NAME, "sh", _literal(name)], timeout_s=timeout_s
    )
    return [line.removeprefix("./") for line in readable(found.stdout).split("\n") if line]


def _similar(name: str, names: Sequence[str]) -> list[str]:
    """Return names that are close to one, and those that differ in their ending alone."""
    stem = posixpath.splitext(name)[0]
    # Comparing takes time that grows with the square of the lengths.
    short = [each for each in names if len(each) <= _MAX_COMPARED_LENGTH][:_MAX_COMPARED]
    close = get_close_matches(name[:_MAX_COMPARED_LENGTH], short, n=_SUGGESTIONS)
    close += [each for each in names if posixpath.splitext(each)[0] == stem and each not in close]
    return close[:_SUGGESTIONS]


def _literal(name: str) -> str:
    """Write a name as a pattern of `find` that matches it alone."""
    return "".join(f"\\{each}" if each in "*?[]\\" else each for each in name)
