"""The sandbox protocols: an image's file system in which commands run, isolated from all else.

There are three implementations: `local` (namespaces on this machine), `pods` (one Kubernetes pod
each, over one exec stream) and `kodo` (containers that kodo starts). All pass the contract suite in
`swe_rollout.testing.sandbox_contract`; a new implementation should run it too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from swe_rollout.types.episode import EpisodeId

MAX_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The result of one command. Output is bytes; errors of the sandbox are never mixed in."""

    exit_code: int
    """The exit code as the shell reports it: 128 + n after signal n, 137 after a deadline kill."""
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    """Whether the command ran out of time and was killed with its process group."""
    stdout_bytes: int = 0
    """Bytes the command wrote; more than `len(stdout)` when the cap cut the output."""
    stderr_bytes: int = 0
    duration_s: float = 0.0

    @property
    def truncated(self) -> bool:
        """Whether the cap cut either stream. The first bytes are kept."""
        return self.stdout_bytes > len(self.stdout) or self.stderr_bytes > len(self.stderr)

    @property
    def ok(self) -> bool:
        """Whether the command exited with code 0 within its time limit."""
        return self.exit_code == 0 and not self.timed_out


class Role(StrEnum):
    """What a sandbox is used for."""

    AGENT = "agent"
    GRADER = "grader"


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """The sandbox to start: an image, for one attempt of an episode, in a role.

    Episode, attempt, role and part together identify a sandbox; a job never asks for two at a time.
    """

    episode: EpisodeId
    role: Role
    image: str
    workdir: str
    """Folder of the image in which commands start; the provider checks that it exists."""
    attempt: int = 1
    deadline_s: float = 7200.0
    """The sandbox ends by itself after this time, even if no process is left to stop it."""
    wants_network: bool = False
    """Whether the task asks for a network. It gets one only if the job allows it."""
    part: int = 0
    """Numbers the sandboxes that one attempt uses for a role, one after another."""
    snapshots: bool = False
    """Whether `Snapshots` will be used: if so, the file system is recorded at the start."""
    grading_s: float = 0.0
    """How long the grader's first sandbox may live, if one will follow. A provider may have it
    beside this one, out of its reach, and end it if it isn't requested soon after."""


@runtime_checkable
class Sandbox(Protocol):
    """One running sandbox. Methods may be called concurrently."""

    @property
    def workdir(self) -> str:
        """The folder in the sandbox where commands start and relative paths begin."""
        ...

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = 120.0,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run a shell script (str, by bash where the image has it) or a program (argument list).

        The command has its own process group, killed at `timeout_s` (TERM, then KILL) inside the
        sandbox; cancelling the call kills it too. Output that background children write later does
        not delay the result. `max_output` caps stdout and stderr each; the first bytes are kept and
        all are counted.

        Raises SandboxError when the sandbox is lost. Nothing the command itself does raises: a
        program that is missing or fails is a result.
        """
        ...

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        """Read a file; FileNotFoundError, IsADirectoryError, PermissionError as usual.

        Relative paths start at `workdir`. A file over `max_bytes` raises OSError (EFBIG), as does
        any other failure that commands in the sandbox can cause; SandboxError means that the
        sandbox is lost.
        """
        ...

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file atomically, with missing parent folders."""
        ...

    async def end_processes(self) -> None:
        """End every process that commands have started, so that files no longer change.

        Raises SandboxError when the sandbox is lost or its processes do not end.
        """
        ...

    async def close(self) -> None:
        """End the sandbox and everything in it. Idempotent; never raises for a lost sandbox."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxDelta:
    """The changes in a sandbox's file system since an earlier moment. Untrusted, like its files.

    True when there is something to apply. `docs/reference/supervisor.md` documents `data`.
    """

    number: int
    """Numbers the deltas of a sandbox from 1; a restored sandbox continues the count."""
    data: bytes = b""
    """A compressed, versioned stream for `Snapshots.apply`; empty when nothing changed."""
    files: int = 0
    """Number of new or changed paths, of any kind."""
    removed: int = 0
    """Number of paths that no longer exist."""
    unsaved: tuple[str, ...] = ()
    """What the delta leaves out, as `path: why`; these paths are missing after `apply`."""
    processes: tuple[str, ...] = ()
    """Command lines of processes that outlived their command; no delta restores them."""

    def __bool__(self) -> bool:
        return bool(self.data)


@runtime_checkable
class Snapshots(Protocol):
    """A sandbox whose file system can be restored in a fresh sandbox of the same image.

    Start it with `SandboxRequest.snapshots`. Files keep their kind, mode, owner, content, mtime and
    hard links; processes are not saved. Concurrent calls take turns.
    """

    async def changes(self, *, since: int | None = None) -> SandboxDelta:
        """Return what changed since an earlier delta, or since the start for the first one.

        `since` is the number of the last delta that is safe, 0 for none; by default the last one
        that was returned. The sandbox remembers the last two moments, so a delta lost in transit
        can be requested again, also by another process that re-attached.

        What can't be saved is listed in `unsaved`, up to the whole file system (`/: why`); `since`
        then stays the same. Raises SandboxError when the sandbox is lost, or `since` is too old.
        """
        ...

    async def apply(self, delta: SandboxDelta) -> None:
        """Bring a fresh sandbox to the state that a delta describes; deltas are applied in order.

        `changes` then counts from that state. Raises SandboxError, with the path, when an entry
        can't be restored: use another sandbox then.
        """
        ...


@dataclass(frozen=True, slots=True)
class SandboxMark:
    """Identifies a sandbox for another process, and how much had been done in it by then."""

    name: str
    uid: str
    """The sandbox's id, which no other sandbox ever has."""
    effects: int
    """Number of operations begun that could change something; if equal, nothing changed. Negative
    in a mark that any number will do for."""


@runtime_checkable
class Markable(Protocol):
    """A sandbox that outlives, for a while, the process that started it."""

    async def mark(self) -> SandboxMark | None:
        """Return a mark of this moment, or None if no other process could use it."""
        ...


@runtime_checkable
class Prewarmed(Protocol):
    """A sandbox that knows whether it was started before it was requested."""

    @property
    def is_warm(self) -> bool:
        """Whether `start` returned a sandbox that was already waiting."""
        ...


@runtime_checkable
class Reattaching(Protocol):
    """A provider that can find a sandbox again after the process that started it died."""

    async def attach(
        self, request: SandboxRequest, mark: SandboxMark, *, life: int, delta: int
    ) -> Sandbox | None:
        """Return the sandbox in exactly the state of the mark, or None if that can't be proved.

        In that case it may have been ended, and `start` serves the request. `life` must be higher
        than that of any earlier process that had the sandbox or tried to attach to it. `delta` is
        the number of the last delta taken there, from which `Snapshots` continues. Never raises for
        a lost sandbox or a platform that does not respond.
        """
        ...


@runtime_checkable
class SandboxProvider(Protocol):
    """Starts sandboxes of one kind, for one job. Implement this to add a kind of sandbox.

    One provider serves a whole process: thousands of `start` calls run concurrently with each other
    and with the sandboxes already started, all on one event loop, so no method may block it.

    Errors decide what happens to the job. SandboxError fails one attempt, which is retried unless
    the error says `retryable=False` (an image that does not exist, a missing `workdir`); a subclass
    with `scarce = True` means that there is no room now, and costs the episode no attempt.
    PrerequisiteError and UnreachableError stop the whole job: raise them for problems that every
    other sandbox would have as well.
    """

    async def start(self, request: SandboxRequest) -> Sandbox:
        """Start a sandbox and return it when commands can run in `request.workdir`.

        The caller closes it. A call that fails or is cancelled leaves nothing running. From here on
        the sandbox must end by itself after `request.deadline_s`, even if this process is killed.

        Raises SandboxError, with why and fix, when this sandbox can't be started.
        """
        ...

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        """Learn which sandboxes will be requested next, soonest first.

        Called often, also before the first `start`; each call replaces the requests of the previous
        one. This is a hint: these requests may never be started, and others may be. Return at once
        and never raise. `requests` may be read only during the call. A provider without warm
        sandboxes does nothing, which is the default.
        """
        del requests

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        """End sandboxes of `episodes` that another process started and left running when it died.

        Called before the first `start` for these episodes, and after `Reattaching.attach`. No other
        process works on them any more, so anything left behind is an orphan; leave sandboxes that
        this process started or attached to, and those of other episodes, alone. A provider whose
        sandboxes end with their process, or can't be found again, does nothing: the default.

        Raises the errors of `start`.
        """
        del episodes

    async def aclose(self) -> None:
        """End the sandboxes that are still open and release what is held: by default, nothing."""
        return
