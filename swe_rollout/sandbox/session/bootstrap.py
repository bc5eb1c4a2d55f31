"""Bring the supervisor into a sandbox, and connect streams to it.

The supervisor is one static program (`sandbox/supervisor`), built for two architectures. In a pod,
process 1 waits as a shell until the first stream has brought the program, and then becomes it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.script import read_script

PROTOCOL: Final = "3"
ORPHAN_S = 120.0
"""How long a supervisor waits for its session to reconnect, where sessions can."""
GONE: Final = 71
"""Exit code of a relay that found no supervisor."""
BROKEN: Final = 75
"""Exit code of a relay whose stream broke or was replaced by a newer one."""
MACHINES: Final = ("x86_64", "aarch64")
_ALIASES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_SOCKET: Final = "swe-rollout"
_BECOMES_SUPERVISOR_MS: Final = 20_000
_FOLDERS: Final = "/run /var/tmp /tmp /dev/shm"


def idle_command(*, beside: bool = False) -> list[str]:
    """Return the idle command of a container's process 1, which later becomes the supervisor.

    One `beside` another container ends by itself when the pod has had no supervisor for a while.
    """
    # Commands may signal it before it is the supervisor: warm pods wait long. Every `sleep` accepts
    # this number, but not `infinity`, and ignores the signals that the shell ignores.
    pause_s = round(ORPHAN_S / 2) if beside else 2147483647
    orphan_ms = round(ORPHAN_S * 1000)
    script = read_script("idle", folders=_FOLDERS, orphan=orphan_ms, socket=_SOCKET, pause=pause_s)
    return ["/bin/sh", "-c", script]


def attach_command(*, first: bool) -> list[str]:
    """Return the command that connects a new stream to the supervisor that is process 1.

    Each stream brings the program again: commands may have removed or replaced the file. Exits with
    `GONE` when there is no supervisor, and with `BROKEN` when the stream breaks.
    """
    wait_ms = _BECOMES_SUPERVISOR_MS if first else 0
    return [*_install(), "", "attach", _SOCKET, str(wait_ms)]


def install_command(*, folder: str = "") -> list[str]:
    """Return the command that brings the supervisor and becomes it, on its own stdin and stdout.

    For containers whose process 1 is not ours. The program is put under `folder`, or under the
    first folder in which programs can be run.
    """
    return [*_install(), folder, *serve_arguments()]


def serve_arguments(*, orphan_s: float = 0.0, socket: str = "") -> list[str]:
    """Return the program's arguments for serving as the supervisor on its stdin and stdout.

    It ends with its stream, unless later streams can reach it at an abstract `socket`.
    """
    return ["serve", "pipes", str(round(orphan_s * 1000)), socket]


def relay_arguments(socket: str) -> list[str]:
    """Return the program's arguments for relaying its own streams to a supervisor."""
    return ["attach", socket, "0"]


@cache
def program(machine: str) -> bytes:
    """Return the supervisor for a machine, as `uname -m` names it; SandboxError if none exists."""
    name = _ALIASES.get(machine, machine)
    if name not in MACHINES:
        raise SandboxError(
            "the sandbox's supervisor can't run there",
            why=f"the node's machine is {machine!r}; there are programs for {', '.join(MACHINES)}",
            fix="run the sandboxes on nodes of these kinds (a node selector in the pod's template)",
            retryable=False,
        )
    return (files("swe_rollout.sandbox.supervisor") / f"supervisor.{name}").read_bytes()


def _install() -> list[str]:
    # The shell reads a size and that many bytes. busybox head would read ahead and swallow more.
    script = read_script("install", folders=_FOLDERS, protocol=PROTOCOL)
    return ["/bin/sh", "-c", script, "sh"]
