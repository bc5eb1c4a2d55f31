"""The sandboxes in which a task's tests run, each with its time limit and its log parser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from swe_rollout.errors import SandboxError, boundary
from swe_rollout.grading.blind import Blind
from swe_rollout.grading.parsers import load_parser
from swe_rollout.grading.parsers.base import NamedLogParser
from swe_rollout.grading.run import Run, RunResult
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import Role, Sandbox, SandboxProvider, SandboxRequest
from swe_rollout.spec.model import Use
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance


class TestSite:
    """Starts sandboxes for test runs."""

    __test__ = False

    def __init__(
        self, provider: SandboxProvider, *, timeout_s: float | None, log_parser: Use | None
    ) -> None:
        """Raises ExtensionError when there is no such parser."""
        self.provider = provider
        self._timeout_s = timeout_s
        self._log_parser = load_parser(log_parser.use, log_parser.with_) if log_parser else None
        self._log_parsers: dict[str, NamedLogParser] = {}

    def require(self, instances: Iterable[Instance]) -> None:
        """Load the log parsers that the instances name. Raises ExtensionError for a missing one."""
        for instance in instances:
            self.parser(instance)

    def request(
        self, instance: Instance, *, episode: EpisodeId, attempt: int = 1
    ) -> SandboxRequest:
        """Describe the sandbox that grading an attempt needs."""
        return SandboxRequest(
            episode=episode,
            role=Role.GRADER,
            image=instance.image,
            workdir=instance.workdir,
            wants_network=instance.wants_network is True,
            attempt=attempt,
            deadline_s=self.test_run_s(instance) + 3 * repository.STEP_S,
        )

    def test_run_s(self, instance: Instance) -> float:
        """Return the seconds that a test run may take."""
        return self._timeout_s or instance.evaluation.timeout_s

    def parser(self, instance: Instance) -> NamedLogParser:
        """Return the parser of an instance's logs."""
        if self._log_parser is not None:
            return self._log_parser
        name = instance.log_parser
        if name not in self._log_parsers:
            self._log_parsers[name] = load_parser(name)
        return self._log_parsers[name]

    @asynccontextmanager
    async def sandbox(self, request: SandboxRequest) -> AsyncIterator[Sandbox]:
        """Start a sandbox, and close it afterwards."""
        async with boundary(SandboxError, "starting the grading sandbox"):
            sandbox = await self.provider.start(request)
        try:
            yield sandbox
        finally:
            await sandbox.close()


@dataclass(frozen=True, slots=True)
class TestPlace:
    """An episode whose tests run; each run gets a sandbox of its own."""

    __test__ = False

    site: TestSite
    instance: Instance
    episode: EpisodeId
    attempt: int

    async def run(
        self, patch: str, *, part: int = 0, blind: Blind | None = None, reads_tests: bool = False
    ) -> RunResult:
        """Run the tests once. No run sees anything that another run left behind."""
        run = Run(
            self.instance,
            patch,
            self.site.test_run_s(self.instance),
            self.site.parser(self.instance),
            blind,
            reads_tests,
        )
        run.check()
        request = self.site.request(self.instance, episode=self.episode, attempt=self.attempt)
        async with self.site.sandbox(replace(request, part=part)) as sandbox:
            return await run.result(sandbox)
