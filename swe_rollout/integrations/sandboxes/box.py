"""A sandbox as other frameworks see it: text instead of bytes, users, files of this machine.

A command that fails or runs out of time is a result. A sandbox that is lost, closed or unable to do
what is asked raises an exception, which is never an observation.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from swe_rollout.errors import SandboxError, SweRolloutError, UsageError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.sandbox import PodSandbox, SandboxSpec
from swe_rollout.worker.standalone import LIFETIME_S, StandaloneSandbox, Wanted, start_sandbox

TIMED_OUT = 124
"""Exit code of a command that ran out of time, as for timeout(1)."""
MAX_OUTPUT_BYTES = 8 << 20
"""How many bytes of stdout, and of stderr, are kept; the first ones are."""
OWN_USERS = (None, "", "root", 0, "0")
"""Names of the sandbox's own user; for any other user, su is used."""
_AS_USER = """\
user=$1 shell=/bin/sh
case $user in
*[!0-9]*) ;;
*) user=$(awk -F: -v id="$user" '$3 == id { print $1; exit }' /etc/passwd) ;;
esac
if command -v bash >/dev/null 2>&1; then shell=$(command -v bash); fi
[ -n "$user" ] || { echo "no user has the id $1" >&2; exit 1; }
exec su -s "$shell" "$user" -c "$2"
"""


@dataclass(frozen=True, slots=True)
class TextResult:
    """The result of a command; output that is not UTF-8 contains replacement characters."""

    exit_code: int
    """124 if the command ran out of time, otherwise the exit code as the shell reports it."""
    stdout: str
    stderr: str
    """Ends with a line that says so if the command ran out of time or output was cut."""
    timed_out: bool


def sandbox_spec(spec: SandboxSpec | Mapping[str, object] | None) -> SandboxSpec:
    """Read a spec from a configuration file's mapping, such as `{"pod": {}}`; pods by default.

    Raises UsageError if the mapping is not a valid `sandbox` of a job file.
    """
    if isinstance(spec, SandboxSpec):
        return spec
    if spec is None:
        return SandboxSpec(pod=PodSandbox())
    try:
        return SandboxSpec.model_validate(spec)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
        raise UsageError("this is no sandbox of a job file", why=why) from error


class Box:
    """A sandbox that is started once and closed once; calls may run concurrently."""

    def __init__(
        self,
        image: str,
        spec: SandboxSpec | Mapping[str, object] | None = None,
        *,
        workdir: str = "/",
        env: Mapping[str, str] | None = None,
        lifetime_s: float = LIFETIME_S,
    ) -> None:
        """Raises UsageError if the spec is not a valid `sandbox` of a job file."""
        self.spec = sandbox_spec(spec)
        self.env = dict(env or {})
        """Environment variables of every command."""
        self._wanted = Wanted(image, workdir, lifetime_s)
        self._ends_at = 0.0
        self._started: StandaloneSandbox | None = None
        self._closed = False
        self._lock = asyncio.Lock()
        self._users: set[str] = set()

    @property
    def id(self) -> str:
        """The running sandbox's name; empty before it is started."""
        return self._started.id if self._started else ""

    @property
    def sandbox(self) -> Sandbox:
        """The running sandbox. Raises SandboxError before the start and after the end."""
        if self._started is None or self._closed:
            state = "was closed" if self._closed else "was not started"
            raise SandboxError(f"the sandbox {state}", why="it can't be used", retryable=False)
        return self._started.sandbox

    async def start(self) -> None:
        """Start the sandbox; the second call does nothing. Raises what `start_sandbox` raises."""
        async with self._lock:
            if self._started is None and not self._closed:
                self._started = await start_sandbox(self.spec, self._wanted)
                self._ends_at = time.monotonic() + self._wanted.lifetime_s

    async def close(self) -> None:
        """End the sandbox. Idempotent; never raises for a lost one."""
        self._closed = True
        async with self._lock:
            if self._started is not None:
                await self._started.close()

    async def is_alive(self) -> bool:
        """Whether commands can run; False whatever prevents it."""
        try:
            return (await self.sandbox.exec(["true"], cwd="/", timeout_s=30.0)).ok
        except (SweRolloutError, OSError):
            return False

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout_s: float | None = None,
        max_output: int | None = None,
    ) -> TextResult:
        """Run a shell script or a program; without a timeout, it may run until the sandbox ends.

        Raises SandboxError when the sandbox is lost or has no such user.
        """
        sandbox = self.sandbox
        left_s = max(1.0, self._ends_at - time.monotonic())
        timeout_s = left_s if timeout_s is None else timeout_s
        if user not in OWN_USERS:
            command = await self._as_user(str(user), command)
        result = await sandbox.exec(
            command,
            cwd=cwd,
            env={**self.env, **(env or {})},
            timeout_s=timeout_s,
            max_output=MAX_OUTPUT_BYTES if max_output is None else max_output,
        )
        notes = []
        if result.timed_out:
            notes.append(f"the command was ended after {timeout_s:g} s: its time was over")
        for name, kept, written in (
            ("stdout", len(result.stdout), result.stdout_bytes),
            ("stderr", len(result.stderr), result.stderr_bytes),
        ):
            if written > kept:
                notes.append(f"{written - kept} more bytes of {name} were not kept")
        stderr = result.stderr.decode(errors="replace")
        if notes:
            stderr = "\n".join([*([stderr] if stderr else []), *notes, ""])
        return TextResult(
            TIMED_OUT if result.timed_out else result.exit_code,
            result.stdout.decode(errors="replace"),
            stderr,
            result.timed_out,
        )

    async def _as_user(self, user: str, command: str | Sequence[str]) -> Sequence[str]:
        """Return the command that runs this one as another user of the image."""
        script = command if isinstance(command, str) else shlex.join(command)
        if user not in self._users:
            test = await self.sandbox.exec(["/bin/sh", "-c", _AS_USER, "sh", user, "true"], cwd="/")
            if not test.ok:
                raise SandboxError(
                    f"commands can't run as the user {user}",
                    why=test.stderr.decode(errors="replace").strip() or "su failed",
                    fix="name a user of the image, or none: then the sandbox's own runs them",
                    retryable=False,
                )
            self._users.add(user)
        return ["/bin/sh", "-c", _AS_USER, "sh", user, script]
