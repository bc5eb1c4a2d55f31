"""What the episodes of a job share, and one attempt at an episode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from zlib import crc32

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_delay,
    stop_any,
    wait_exponential,
)
from tenacity.stop import stop_base

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.program import Agent, loop
from swe_rollout.engine.base import CacheGate, OpenGate
from swe_rollout.errors import (
    EpisodeError,
    ExtensionFailedError,
    GraderError,
    SandboxError,
    TaskError,
    boundary,
)
from swe_rollout.events import Events, Service, Subscriber, waiting
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.rewards import Rewards
from swe_rollout.journal.fork_point import ForkPoint
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import (
    Reattaching,
    Role,
    Sandbox,
    SandboxMark,
    SandboxProvider,
    SandboxRequest,
)
from swe_rollout.sandbox.repository import Patch
from swe_rollout.spec.job import ExtensionFile
from swe_rollout.spec.limits import Resume, RetrySpec
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.turn import Turn
from swe_rollout.types.verdict import Verdict

SANDBOX_MARGIN_S = 600.0
"""Time added to the episode's own, for starting, preparing and taking the diff."""
SCARCITY_TIMEOUT_S = 3600.0
"""How long grading waits for capacity; long, because a patch cost a whole episode."""
MAX_RETRY_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at an episode."""

    episode: EpisodeId
    instance: Instance
    number: int
    """Counts from 1."""


@dataclass(slots=True)
class _Trial:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    has_passed: bool = False
    failure: EpisodeError | None = None


@dataclass(slots=True)
class Trials:
    """Remembers how trials ended, so that each is made once in a run."""

    _by_name: dict[str, _Trial] = field(default_factory=dict)

    async def once(self, name: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Make a trial unless it has been made. Raises what it found wrong, each time.

        A trial that was lost with its sandbox is made again.
        """
        trial = self._by_name.setdefault(name, _Trial())
        async with trial.lock:
            if trial.failure is not None:
                raise trial.failure
            if not trial.has_passed:
                try:
                    await attempt()
                except (ExtensionFailedError, TaskError) as error:
                    trial.failure = error
                    raise
                trial.has_passed = True


@dataclass(frozen=True, slots=True)
class JobContext:
    """What the episodes of a job share."""

    agent: AgentParts
    sampling: Sampling
    """The job's sampling; `sampling_for` derives the seed of each episode from its seed."""
    sandboxes: SandboxProvider
    grader: Grader | None
    """None if the job grades nothing; its episodes then earn no reward."""
    retry: RetrySpec
    policy: Callable[[EpisodeId], str]
    """The policy's name in the record of an episode."""
    spec_digest: str
    extensions: tuple[ExtensionFile, ...] = ()
    """Files of user code that the job brought."""
    rewards: Rewards = field(default_factory=Rewards)
    program: Agent = loop
    reported: set[str] = field(default_factory=set)
    """The failures of user code that were logged as warnings; no log repeats them."""
    trials: Trials = field(default_factory=Trials)
    """What is found out once for each image and each task, before the policy acts."""
    fork: ForkPoint | None = None
    """The turn from which all episodes start; None if they start from their tasks."""
    gate: CacheGate = field(default_factory=OpenGate)
    """Lets episodes start."""
    publish: Subscriber = field(default_factory=Events)
    """Publishes events to the job's subscribers; by default there are none."""

    @asynccontextmanager
    async def admitted(self, episode: EpisodeId) -> AsyncIterator[None]:
        """Wait until the engine has room for an episode's context, and keep it in the block."""
        with waiting(self.publish, Service.ENGINE):
            await self.gate.enter(episode)
        try:
            yield
        finally:
            self.agent.engine.release(episode)

    def sampling_for(self, episode: EpisodeId) -> Sampling:
        """Return the sampling of an episode: its own seed, the same in every attempt."""
        if self.sampling.seed is None:
            return self.sampling
        seed = (self.sampling.seed + crc32(str(episode).encode())) & 0x7FFFFFFF
        return self.sampling.model_copy(update={"seed": seed})

    def agent_context(
        self,
        attempt: Attempt,
        sandbox: Sandbox,
        *,
        on_turn: Callable[[Turn], None],
        parts: AgentParts | None = None,
    ) -> AgentContext:
        """Return the context for an attempt's agent; `parts` replace those of the job."""
        return AgentContext(
            parts or self.agent,
            instance=attempt.instance,
            episode=attempt.episode,
            sampling=self.sampling_for(attempt.episode),
            sandbox=sandbox,
            on_turn=on_turn,
        )

    async def start_sandbox(self, attempt: Attempt, *, snapshots: bool = False) -> Sandbox:
        """Start the agent's sandbox from the image of the task."""
        request = replace(self._agent_request(attempt), snapshots=snapshots)
        async with boundary(SandboxError, "starting the sandbox"):
            return await self.sandboxes.start(request)

    async def try_out(self, sandbox: Sandbox, instance: Instance) -> None:
        """Find out, before the policy acts, whether its work in this sandbox could count.

        Raises TaskError if the task's reference fix does not apply, ExtensionFailedError if the
        programs of its tools can't be started.
        """
        await self.trials.once(
            f"fix of {instance.instance_id}", partial(repository.require_fix, sandbox, instance)
        )
        await self.trials.once(
            f"tools in {instance.image}", partial(self.agent.toolbox.try_start, sandbox)
        )

    async def attach_sandbox(
        self, attempt: Attempt, mark: SandboxMark, *, life: int, delta: int
    ) -> Sandbox | None:
        """Attach to the sandbox that the agent used in another process (see `Reattaching`)."""
        if not isinstance(self.sandboxes, Reattaching):
            return None
        request = replace(self._agent_request(attempt), snapshots=True)
        async with boundary(SandboxError, "attaching to the sandbox"):
            return await self.sandboxes.attach(request, mark, life=life, delta=delta)

    def prewarm(self, running: Iterable[Attempt], queued: Iterable[Attempt]) -> None:
        """Prewarm the sandboxes that running and queued attempts need next.

        A running attempt will need a grading sandbox, and then makes room for the next attempt.
        """
        running = [*running]
        if (most := self.gate.capacity) is not None and most < len(running):
            # The others wait for the engine, and queued ones even longer.
            running, queued = running[:most], ()
        self.sandboxes.prewarm(self._requests(running, queued))

    def _requests(
        self, running: Iterable[Attempt], queued: Iterable[Attempt]
    ) -> Iterator[SandboxRequest]:
        for current, following in zip_longest(running, queued):
            if current is not None:
                yield self._expected_request(current)
                yield from self._grader_requests(current)
            if following is not None:
                yield self._expected_request(following)

    def _expected_request(self, attempt: Attempt) -> SandboxRequest:
        """Return the request to expect, so that a waiting pod can record its files in advance.

        A fork's files are recorded only after the changes that it inherits have been applied.
        """
        is_resumable = self.retry.resume is not Resume.NEVER and attempt.instance.folder is None
        return replace(self._agent_request(attempt), snapshots=is_resumable and self.fork is None)

    def _agent_request(self, attempt: Attempt) -> SandboxRequest:
        return SandboxRequest(
            episode=attempt.episode,
            role=Role.AGENT,
            image=attempt.instance.image,
            workdir=attempt.instance.workdir,
            wants_network=attempt.instance.wants_network is True,
            attempt=attempt.number,
            deadline_s=self.agent.limits.episode_seconds + SANDBOX_MARGIN_S,
            grading_s=sum(each.deadline_s for each in self._grader_requests(attempt)),
        )

    def _grader_requests(self, attempt: Attempt) -> tuple[SandboxRequest, ...]:
        if self.grader is None:
            return ()
        request = self.grader.site.request(
            attempt.instance, episode=attempt.episode, attempt=attempt.number
        )
        return (request,)

    async def grade(self, attempt: Attempt, patch: Patch) -> Verdict | None:
        """Grade a patch; return None if the job grades nothing.

        If the grading sandbox is lost, only grading is repeated, not the episode's turns.
        """
        if self.grader is None:
            return None
        async with boundary(GraderError, "grading"):
            return await grading_again(self.retry)(
                self.grader.grade,
                attempt.instance,
                patch,
                episode=attempt.episode,
                attempt=attempt.number,
            )


def grading_again(retry: RetrySpec) -> AsyncRetrying:
    """Return the retry policy for gradings that broke, from the job's `retry`."""
    return AsyncRetrying(
        retry=retry_if_exception(lambda e: isinstance(e, EpisodeError) and e.retryable),
        stop=stop_any(_AttemptsSpent(retry.attempts), stop_after_delay(SCARCITY_TIMEOUT_S)),
        wait=wait_exponential(multiplier=retry.backoff_seconds, max=MAX_RETRY_WAIT_S),
        reraise=True,
    )


class _AttemptsSpent(stop_base):
    """Stops after a number of gradings, not counting those that found no capacity."""

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts

    def __call__(self, retry_state: RetryCallState) -> bool:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        is_scarce = isinstance(error, EpisodeError) and error.scarce
        return retry_state.attempt_number >= self._attempts and not is_scarce
