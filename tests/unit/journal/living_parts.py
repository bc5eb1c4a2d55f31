"""Sandboxes that outlive the process that started them, and are found again by their marks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from swe_rollout.sandbox.base import (
    ExecResult,
    SandboxMark,
    SandboxRequest,
)
from swe_rollout.types.episode import EpisodeId
from unit.journal.journal_parts import Death, Disk, Life


@dataclass
class LivingDisk(Disk):
    """A sandbox that the death of its process leaves as it is."""

    uid: str = ""
    effects: int = 0
    ended: tuple[str, ...] = ()
    """What ran when the agent had ended."""
    dies_late: bool = False
    """Whether a process may also die when a command has run, before it hears of that."""

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        **options: object,
    ) -> ExecResult:
        found = await super().exec(command, env=env, **options)
        if not env or "BASE" not in env:
            await self._is_heard()
        return found

    async def _run(self, command: str) -> ExecResult:
        self.effects += 1
        return await super()._run(command)

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        try:
            return await super().read_file(path, max_bytes=max_bytes)
        finally:
            self.effects += not self.death.happened.is_set()

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        await super().write_file(path, data, mode=mode)
        self.effects += 1
        await self._is_heard()

    async def end_processes(self) -> None:
        self.ended = self.processes
        await super().end_processes()

    async def mark(self) -> SandboxMark:
        return SandboxMark(f"pod-{self.uid}", self.uid, self.effects)

    async def close(self) -> None:
        if not self.death.happened.is_set():
            self.closed = True

    async def _is_heard(self) -> None:
        if self.dies_late:
            await self.death.call()


@dataclass
class Cluster:
    """What lives on when a process dies."""

    disks: list[LivingDisk] = field(default_factory=list)
    dies_late: bool = False
    reachable: bool = True
    """Whether anything can be attached to."""

    @property
    def left(self) -> list[LivingDisk]:
        """The sandboxes that nobody ended."""
        return [disk for disk in self.disks if not disk.closed]


@dataclass
class LivingDisks:
    """One process's provider of the sandboxes of a cluster."""

    cluster: Cluster
    death: Death
    started: list[LivingDisk] = field(default_factory=list)
    attached: list[LivingDisk] = field(default_factory=list)
    lives: list[int] = field(default_factory=list)
    """Under which it tried to attach."""

    async def start(self, request: SandboxRequest) -> LivingDisk:
        del request
        uid = str(len(self.cluster.disks))
        disk = LivingDisk(self.death, uid=uid, dies_late=self.cluster.dies_late)
        self.started.append(disk)
        self.cluster.disks.append(disk)
        return disk

    async def attach(
        self, request: SandboxRequest, mark: SandboxMark, *, life: int, delta: int
    ) -> LivingDisk | None:
        del request
        self.lives.append(life)
        for disk in self.cluster.left if self.cluster.reachable else ():
            if (disk.uid, disk.effects) == (mark.uid, mark.effects):
                # One walk more may have been made whose delta was not written any more.
                assert disk.number in (delta, delta + 1)
                disk.number, disk.death = delta, self.death
                self.attached.append(disk)
                return disk
        return None

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        """Nothing is warm."""

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        assert len(episodes) == 1
        for disk in self.cluster.left:
            if disk.death is not self.death:
                disk.closed = True

    async def aclose(self) -> None:
        """There is nothing to release."""


@dataclass
class LivingLife(Life):
    """A process with the sandboxes of a cluster."""

    cluster: Cluster = field(default_factory=Cluster)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.living = LivingDisks(self.cluster, self.death)
        self.disks = self.living  # type: ignore[assignment]
