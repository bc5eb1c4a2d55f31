"""The sandbox protocols: an image's file system in which commands run, isolated from all else.

Three implementations: `local` (namespaces on this machine), `pods` (one Kubernetes pod each, over
one exec stream) and `kodo` (containers that kodo starts). All pass the contract suite in
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
    """As the shell reports it: 128 + n after signal n; 137 after a deadline kill."""
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    """Whether the command was killed, with its process group, because its time was over."""
    stdout_bytes: int = 0
    """Bytes the command wrote; more than `len(stdout)` when the cap cut them."""
    stderr_bytes: int = 0
    duration_s: float = 0.0

    @property
    def truncated(self) -> bool:
        """Whether a cap cut either stream. The first bytes are kept."""
        return self.stdout_bytes > len(self.stdout) or self.stderr_bytes > len(self.stderr)

    @property
    def ok(self) -> bool:
        """Exit code 0 within the time limit."""
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
    """Whether the task asks for a network. It has one only where the job gives it."""
    part: int = 0
    """Counts the sandboxes of a role that one attempt needs, one after another."""
    snapshots: bool = False
    """Whether `Snapshots` will be used: what its file system holds is recorded at hand-out."""


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

        Relative paths start at `workdir`. A file over `max_bytes` raises OSError (EFBIG), and so
        does whatever else commands of the sandbox can bring about; SandboxError says that it is
        lost.
        """
        ...

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file atomically, with missing parent folders."""
        ...

    async def end_processes(self) -> None:
        """End every process that commands have started, so that nothing changes files any more.

        Raises SandboxError when the sandbox is lost or its processes do not end.
        """
        ...

    async def close(self) -> None:
        """End the sandbox and everything in it. Idempotent; never raises for a lost sandbox."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxDelta:
    """What differs in a sandbox's file system since an earlier moment. Untrusted, as its files are.

    True when there is something to apply. `docs/reference/supervisor.md` documents `data`.
    """

    number: int
    """Counts the deltas of a sandbox from 1; a restored sandbox goes on counting."""
    data: bytes = b""
    """A compressed, versioned stream for `Snapshots.apply`; empty when nothing differs."""
    files: int = 0
    """Paths that are new or differ, of any kind."""
    removed: int = 0
    """Paths that are there no more."""
    unsaved: tuple[str, ...] = ()
    """What this delta lacks, each as `path: why`: such paths are missing where it is applied."""
    processes: tuple[str, ...] = ()
    """Command lines of processes that outlived their command: no delta brings them back."""

    def __bool__(self) -> bool:
        return bool(self.data)


@runtime_checkable
class Snapshots(Protocol):
    """Sandboxes whose file system can be brought to a fresh sandbox of the same image.

    Start them with `SandboxRequest.snapshots`. Files are carried with kind, mode, owner, content,
    mtime and hard links; processes are not. Concurrent calls take turns.
    """

    async def changes(self, *, since: int | None = None) -> SandboxDelta:
        """Return what differs since an earlier delta; the first is since hand-out.

        `since` is the number of the last delta that is safe, 0 for none; without it, of the last
        one that was returned. The sandbox remembers the last two moments, so a delta that was lost
        on its way is asked for again, also by another process that re-attached.

        What can't be carried is in `unsaved`, up to the whole file system (`/: why`); `since` then
        stays the same. Raises SandboxError when the sandbox is lost, or `since` is older.
        """
        ...

    async def apply(self, delta: SandboxDelta) -> None:
        """Bring a fresh sandbox to the state that a delta describes; deltas are applied in order.

        `changes` counts from there. Raises SandboxError, with the path, when an entry can't be
        restored: use another sandbox then.
        """
        ...


@dataclass(frozen=True, slots=True)
class SandboxMark:
    """Where another process finds a sandbox, and how much had been done in it by then."""

    name: str
    uid: str
    """No other sandbox ever has it."""
    effects: int
    """Operations that began and could change something. The same number: none has since."""


@runtime_checkable
class Markable(Protocol):
    """Sandboxes that outlive the process that started them, for a while."""

    async def mark(self) -> SandboxMark | None:
        """Return a mark of this moment, or None where no other process could use it.

        Call it while no operation runs. Raises SandboxError when the sandbox is lost.
        """
        ...


@runtime_checkable
class Prewarmed(Protocol):
    """Sandboxes that say whether they had been started before they were requested."""

    @property
    def is_warm(self) -> bool:
        """Whether `start` handed out one that waited."""
        ...


@runtime_checkable
class Reattaching(Protocol):
    """Providers that find a sandbox again which a process that died has started."""

    async def attach(
        self, request: SandboxRequest, mark: SandboxMark, *, life: int, delta: int
    ) -> Sandbox | None:
        """Return the sandbox in exactly the state of the mark, or None where that can't be proved.

        Then it may have been ended, and `start` serves the request. `life` is higher than that of
        any process before that had the sandbox, or tried to have it. `delta` is the number of the
        last one that was taken there, which `Snapshots` goes on from. Never raises for a sandbox
        that is lost or a platform that does not respond.
        """
        ...


@runtime_checkable
class SandboxProvider(Protocol):
    """Start sandboxes of one kind, for one job. Implement this to add a kind of sandbox.

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
        the sandbox must end by itself after `request.deadline_s`, also when this process is killed.

        Raises SandboxError, with why and fix, when this sandbox can't be started.
        """
        ...

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        """Learn which sandboxes will be requested next, soonest first.

        Called often, also before the first `start`; each call replaces the requests of the one
        before. This is a hint: the requests may never be started, and others may be. Return at once
        and never raise. `requests` may be read only during the call. A provider without warm
        sandboxes does nothing.
        """
        ...

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        """End sandboxes of `episodes` that another process started and left running when it died.

        Called before the first `start` for these episodes, and after `Reattaching.attach`. No other
        process works on them any more, so whatever one has left is an orphan; leave sandboxes that
        this process started or attached to, and those of other episodes, alone. A provider
        whose sandboxes end with their process, or can't be found again, does nothing.

        Raises the errors of `start`.
        """
        ...

    async def aclose(self) -> None:
        """End the sandboxes that are still open and release everything the provider holds."""
        ...
