"""How a session reads and writes files: two small scripts, and what their exit codes mean.

Only `session.py` uses this. The scripts need `head`, `cat`, `wc`, `mkdir`, `chmod` and `mv`.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from swe_rollout.errors import SandboxError

if TYPE_CHECKING:
    from swe_rollout.sandbox.frames import Result

_READ = """\
p=$1
[ ! -d "$p" ] || exit 21
if [ ! -e "$p" ]; then
    d=$p
    while [ ! -d "${d:=/}" ]; do d=${d%/*}; done
    [ -x "$d" ] && exit 2
    exit 13
fi
[ -f "$p" ] || exit 22
[ -r "$p" ] || exit 13
exec head -c "$2" <"$p"
"""
_WRITE = """\
p=$1
if [ -L "$p" ]; then
    p=$(readlink -f -- "$p" && echo .) && p=${p%??} || p=$1
fi
[ ! -d "$p" ] || exit 21
d=${p%/*}
mkdir -p -- "${d:=/}" || exit 5
t=$d/.swe-rollout.$$
cat >"$t" && [ "$(wc -c <"$t")" -eq "$2" ] && chmod "$3" "$t" && mv -f -- "$t" "$p" && exit
rm -f -- "$t"
exit 5
"""
_BY_MESSAGE = {
    "Permission denied": errno.EACCES,
    "Read-only file system": errno.EROFS,
    "Not a directory": errno.ENOTDIR,
    "File exists": errno.ENOTDIR,
    "No space left": errno.ENOSPC,
    "File name too long": errno.ENAMETOOLONG,
}


def read_command(path: str, max_bytes: int) -> list[str]:
    """A program that prints a file, or one byte more than it should at most."""
    return ["/bin/sh", "-c", _READ, "sh", path, str(max_bytes + 1)]


def write_command(path: str, size: int, mode: int) -> list[str]:
    """A program that makes a file of `size` bytes of stdin under another name, then moves it."""
    return ["/bin/sh", "-c", _WRITE, "sh", path, str(size), f"{mode & 0o7777:o}"]


def content(result: Result, path: str, max_bytes: int) -> bytes:
    """The file that `read_command` printed; raises what `open` would raise."""
    _check(result, path, doing="reading")
    if result.stdout_bytes > max_bytes:
        raise SandboxError(
            f"{path} is too large to read",
            why=f"it has more than {max_bytes} bytes",
            fix="read a part of it with a command, or raise max_bytes",
            retryable=False,
        )
    return result.stdout


def check_written(result: Result, path: str) -> None:
    """Nothing when `write_command` did its work; raises what `open` would raise."""
    _check(result, path, doing="writing")


def _check(result: Result, path: str, *, doing: str) -> None:
    if result.exit_code == 0 and not result.timed_out:
        return
    message = result.stderr.decode("utf-8", "replace").strip()
    code = result.exit_code
    if code == errno.EIO:
        code = next((n for text, n in _BY_MESSAGE.items() if text in message), errno.EIO)
    known = (errno.ENOENT, errno.EACCES, errno.EISDIR, errno.EINVAL, *_BY_MESSAGE.values())
    if code in known and not result.timed_out:
        raise OSError(code, os.strerror(code), path)
    raise SandboxError(
        f"{doing} {path} failed",
        why="it took too long" if result.timed_out else message or f"exit code {code}",
        fix="look at the disk space and the tools (head, cat, mv) of the sandbox",
    )
