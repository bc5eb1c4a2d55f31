"""The wire form of the supervisor's protocol: its program, requests as bytes, answers as values.

`supervisor.sh` is the other end and documents the frames. Only `session.py` uses this.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import TYPE_CHECKING

from swe_rollout.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from swe_rollout.sandbox.channel import Channel

PROTOCOL = "1"
CHUNK_BYTES = 1 << 20
"""Larger frames reset some exec connections."""
_INLINE_SCRIPT_BYTES = 100_000
"""Linux refuses a single argument above 128 KiB; longer scripts run from a file."""
_HEADER_BYTES = 512
_READ_ONLY = frozenset({"UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO"})
"""Names some shells do not let a script export; `env` sets them."""

# Saved to a file and run from there: the script as an argument would make `pkill -f sleep` end it.
_BOOTSTRAP = """\
for _sv_d in "$1" /run /var/tmp /tmp /dev/shm; do
    [ -n "$_sv_d" ] && _sv_d=$(mktemp -d "$_sv_d/.swe-rollout.XXXXXX" 2>/dev/null) && break
done
[ -n "$_sv_d" ] || { echo "swe-rollout failed: no folder it may write to"; exit 70; }
while IFS= read -r _sv_l && [ "$_sv_l" != . ]; do printf '%s\\n' "$_sv_l"; done >"$_sv_d/supervisor"
exec "$0" "$_sv_d/supervisor" "$_sv_d" "$0"
"""


@dataclass(frozen=True, slots=True)
class Job:
    """One command as the session was asked to run it."""

    command: str | Sequence[str]
    cwd: str
    env: Mapping[str, str]
    stdin: bytes
    timeout_s: float
    max_output: int


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to one command."""

    exit_code: int
    timed_out: bool
    stdout: bytes
    stdout_bytes: int
    stderr: bytes
    stderr_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of an answer: which command, what kind, and that kind's values."""

    number: int
    kind: str
    values: tuple[int, ...]


def supervisor_command(*, shell: str = "/bin/sh", state_dir: str = "") -> list[str]:
    """The program to start in a sandbox; the session then sends it the supervisor itself.

    `state_dir` is where the supervisor keeps its files; by default the first of /run, /var/tmp,
    /tmp and /dev/shm it may write to. PATH and everything else comes from the environment it is
    started in, which is also that of the commands.
    """
    return [shell, "-c", _BOOTSTRAP, shell, state_dir]


@cache
def supervisor_program() -> bytes:
    """The supervisor as the bootstrap expects it: without comments, ended by a dot."""
    text = (files("swe_rollout.sandbox") / "supervisor.sh").read_text("utf-8")
    lines = (line.strip() for line in text.splitlines())
    code = [line for line in lines if line and not line.startswith("#")]
    return "\n".join([*code, ".", ""]).encode()


def run_frames(number: int, job: Job) -> Iterator[bytes]:
    """The requests that run a command, in order; ValueError when it can't be written down."""
    script = encoded(job.command) if isinstance(job.command, str) else b""
    # A NUL can't be in an argument; from a file, the shell says itself what it thinks of it.
    from_file = len(script) > _INLINE_SCRIPT_BYTES or b"\0" in script
    text = _job_text(job, from_file=from_file)
    run = f"{number} run {max(job.timeout_s, 0.001):.3f} {job.max_output}\n".encode()
    return chain(
        _put(number, "in", job.stdin),
        _put(number, "script", script if from_file else b""),
        [b"".join([*_put(number, "job", text), run])],
    )


def kill_frame(number: int) -> bytes:
    """The request that ends a command, or forgets one that never ran."""
    return f"{number} kill\n".encode()


def ping_frame(number: int) -> bytes:
    """The request that is answered at once."""
    return f"{number} ping\n".encode()


def encoded(text: str) -> bytes:
    """UTF-8 for the sandbox; undecodable bytes as they were, lone surrogates as `?`."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


class FrameReader:
    """Reads lines and exact numbers of bytes from a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._buffer = bytearray()

    async def line(self) -> bytes:
        """The next line without its end; raises SandboxError when the stream ends or has none."""
        start = 0
        while (end := self._buffer.find(b"\n", start)) < 0:
            start = len(self._buffer)
            if start > _HEADER_BYTES:
                raise SandboxError(
                    "the sandbox broke its protocol",
                    why=f"no frame begins with {bytes(self._buffer[:80])!r}",
                    fix="something in the sandbox writes to the supervisor's stream",
                )
            await self._fill()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    async def exactly(self, count: int) -> bytes:
        """The next `count` bytes."""
        while len(self._buffer) < count:
            await self._fill()
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def hello(self) -> None:
        """Return when the supervisor has said that it is ready."""
        line = await self.line()
        if not line.startswith(f"swe-rollout {PROTOCOL} ".encode()):
            raise SandboxError(
                "the sandbox's supervisor did not start",
                why=f"it said {line[:200]!r}",
                fix="check that the image has a working /bin/sh and a writable /run or /tmp",
            )

    async def header(self) -> Header:
        """The first line of the next answer."""
        line = await self.line()
        match = re.fullmatch(rb"(\d{1,18}) ([a-z]{1,16})((?: \d{1,18})*)", line)
        if match is None:
            raise SandboxError(
                "the sandbox broke its protocol",
                why=f"not a frame: {line[:80]!r}",
                fix="something in the sandbox writes to the supervisor's stream",
            )
        number, kind, values = match.groups()
        return Header(int(number), kind.decode(), tuple(int(value) for value in values.split()))

    async def _fill(self) -> None:
        data = await self._channel.receive()
        if not data:
            raise SandboxError(
                "the sandbox is lost",
                why="its supervisor ended",
                fix="look at the sandbox's own end (out of memory, evicted, killed by a command)",
            )
        self._buffer += data


def _put(number: int, name: str, data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK_BYTES):
        chunk = data[start : start + CHUNK_BYTES]
        yield f"{number} {name} {len(chunk)}\n".encode() + chunk


def _job_text(job: Job, *, from_file: bool) -> bytes:
    """Shell that becomes the command. Quoting makes every byte but NUL safe in it."""
    exports = {name: value for name, value in job.env.items() if _is_exportable(name)}
    others = [f"{name}={value}" for name, value in job.env.items() if name not in exports]
    env = " ".join(map(_quoted, ["env", *others])) if others else ""
    if not isinstance(job.command, str):
        # Through a shell, for the usual 126 and 127 of what can't be started.
        program = " ".join(map(_quoted, job.command))
        start = f'$_sv_start "$_sv_sh" -c \'exec "$@"\' sh {env} {program}'
    elif from_file:
        start = f'$_sv_start {env} "$_sv_shell" "$_sv_f.script"'
    else:
        start = f'$_sv_start {env} "$_sv_shell" -c {_quoted(job.command)}'
    return encoded(
        "\n".join(
            [
                f"set -- {start}",
                f"if ! cd {(cwd := _quoted(job.cwd))} 2>/dev/null; then",
                f"printf 'cd: %s: no such folder\\n' {cwd} >&2; exit 126; fi",
                *(f"export {name}={_quoted(value)}" for name, value in exports.items()),
                'exec "$@"',
                "",
            ]
        )
    )


def _quoted(text: str) -> str:
    if "\0" in text:
        raise ValueError("arguments, paths and environment can't contain NUL")
    return shlex.quote(text)


def _is_exportable(name: str) -> bool:
    if not name or "=" in name:
        raise ValueError(f"not the name of an environment variable: {name!r}")
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None and name not in _READ_ONLY
