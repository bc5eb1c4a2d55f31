"""A program in the sandbox that outlives a call, with named pipes there as its stdin and stdout.

A sandbox only runs commands that end, so a long-running program needs a relay. `start` leaves it
running in the background; `exchange` is a short command that writes to its stdin and waits for the
next output on its stdout. It needs `sh`, `mkfifo`, `mktemp`, `cat` and `dd`, which busybox has.

A program that floods its stdout blocks on the full pipe; the start of its stderr is kept and the
rest discarded. It ends with the sandbox's processes. The policy can break all of this, at the cost
of the tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from swe_rollout.sandbox.base import Sandbox

CHUNK_BYTES: Final = 1 << 16
"""The capacity of a pipe."""
_ERROR_BYTES: Final = 1 << 14
_STOP_S: Final = 30.0
_START: Final = r"""
umask 077
folder=$(mktemp -d "${TMPDIR:-/tmp}/swe-rollout-mcp-XXXXXX") || exit 1
mkfifo "$folder/in" "$folder/out" && echo '*' >"$folder/.gitignore" || exit 1
# Held open for as long as the program runs: no end of file between two calls, and no signal.
exec 4<>"$folder/out" 5<>"$folder/in"
(
  # By exec: a shell keeps what a group's redirections replace, and with it the caller's streams.
  exec </dev/null 2>/dev/null 3>&1 >/dev/null
  "$@" <"$folder/in" >"$folder/out" 2>&3 3>&- 4>&- 5>&- &
  echo $! >"$folder/pid"
  wait $!
  code=$?
  # Without the folder, it was stopped: nobody reads on.
  echo "$code" >"$folder/exit" || exit
  exec 3>&- 5>&-
  printf '\n@exit %s\n' "$code" >&4
  # What it wrote last stays readable for a while.
  exec sleep 60
) | (
  exec >/dev/null 2>&1 4>&- 5>&-
  dd bs=512 count=32 of="$folder/err"
  : >"$folder/err.read"
  exec cat
) &
printf '%s\n' "$folder"
"""
_EXCHANGE: Final = r"""
exec 4<>"$1/out" 5<>"$1/in"
if [ "$2" = first ] && [ -e "$1/exit" ]; then exit 71; fi
# Opened while a reader is certain; from then on, one that ends is noticed.
exec 6>"$1/in" 5<&-
# That it fails is told by what the program wrote last; busybox's fails without any input too.
cat >&6 2>/dev/null
exec 6>&-
exec dd bs=65536 count=1 <&4 2>/dev/null
"""
_STOP: Final = r"""
# What an ended program wrote last may still be on its way; a child of it may hold the pipe open.
left=50
while [ $left -gt 0 ]; do
  left=$((left - 1))
  if [ ! -e "$1/exit" ] || [ -e "$1/err.read" ]; then break; fi
  sleep 0.1 2>/dev/null || sleep 1
done
head -c "$2" "$1/err" 2>/dev/null
pid=
[ -e "$1/exit" ] || read -r pid 2>/dev/null <"$1/pid"
rm -rf "$1"
case $pid in
'' | *[!0-9]* | 0 | 1) exit ;;
esac
kill "$pid" 2>/dev/null
{ sleep 1; kill -9 "$pid"; } </dev/null >/dev/null 2>&1 &
"""


class RelayError(Exception):
    """The program has ended, or can't be reached any more."""


class RelayTimeoutError(RelayError):
    """The program did not read its input, or wrote nothing, within the time limit."""


@dataclass(frozen=True, slots=True)
class Relay:
    """A program that runs in a sandbox, independently of this process."""

    folder: str
    """The folder of its pipes and the start of its stderr."""

    @classmethod
    async def start(
        cls, sandbox: Sandbox, command: Sequence[str], *, env: Mapping[str, str], timeout_s: float
    ) -> Relay:
        """Start a program. Raises RelayError if the sandbox has no place for its pipes.

        A missing program is only noticed by the first exchange.
        """
        made = await sandbox.exec(
            ["/bin/sh", "-c", _START, "sh", *command], env=env, timeout_s=timeout_s
        )
        folder = made.stdout.decode(errors="replace").removesuffix("\n")
        if made.timed_out:
            raise RelayTimeoutError("it could not be started in time")
        if not made.ok or not folder.startswith("/") or "\n" in folder:
            raise RelayError("the sandbox has no place for its pipes")
        return cls(folder)

    async def exchange(
        self, sandbox: Sandbox, data: bytes, *, first: bool, timeout_s: float
    ) -> bytes:
        """Write `data`, and return the next one or more bytes that the program writes.

        `first` means that no response was read yet, so a program that has ended is reported.
        """
        found = await sandbox.exec(
            ["/bin/sh", "-c", _EXCHANGE, "sh", self.folder, "first" if first else "next"],
            stdin=data,
            timeout_s=timeout_s,
            max_output=CHUNK_BYTES,
        )
        if found.timed_out:
            raise RelayTimeoutError("it did not answer in time")
        if not found.ok or not found.stdout:
            raise RelayError("it has ended")
        return found.stdout

    async def stop(self, sandbox: Sandbox) -> bytes:
        """End the program, remove its pipes, and return the start of its stderr."""
        ended = await sandbox.exec(
            ["/bin/sh", "-c", _STOP, "sh", self.folder, str(_ERROR_BYTES)], timeout_s=_STOP_S
        )
        return ended.stdout
