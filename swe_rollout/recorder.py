"""Record an attempt at an episode, whether it completes or fails."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from contextvars import Token
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Protocol, Self

import structlog

from swe_rollout.agent.branches import EpisodeState
from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import Boundary, EpisodeError, SandboxDestroyedError
from swe_rollout.events import AttemptBegan, AttemptEnded, Phase, PhaseBegan, TurnEnded
from swe_rollout.grading.rewards import RewardInput
from swe_rollout.sandbox.repository import Patch
from swe_rollout.tokens.branch import Branch, BranchKind
from swe_rollout.types.episode import Failure, Resumption, StopReason, Timing
from swe_rollout.types.trajectory import ChatLine, ChatRecord, Trajectory
from swe_rollout.types.turn import Turn
from swe_rollout.types.verdict import Reward, Verdict

log = structlog.get_logger()
_EVIDENCE_CHARS = 1000
_NO_TOKENS = Branch(0, BranchKind.MAIN, None, 0, (), (), (), ())


class Branched(Protocol):
    """The agents of an episode, or a harness in their place: turns in branches."""

    @property
    def state(self) -> EpisodeState:
        """What the agents share."""
        ...

    @property
    def episode_turns(self) -> Sequence[Turn]:
        """All turns so far."""
        ...

    def branches(self) -> tuple[Branch, ...]:
        """Return all branches, the main one first."""
        ...

    def prompts(self) -> tuple[ChatLine, ...]:
        """Return the messages that the branches start with."""
        ...

    def chat(self) -> ChatRecord | None:
        """Return the conversations of an episode without tokens; None if it has tokens."""
        ...


class Recorder:
    """Collects the results of an attempt. Tokens sampled before a failure stay in the record.

    Inside `with`, every log line carries the episode's address and the attempt's number, including
    those of tasks and threads started there.
    """

    def __init__(self, attempt: Attempt, context: JobContext) -> None:
        self.attempt = attempt
        self.context = context
        self.agent: Branched | None = None
        self.stop_reason: StopReason | None = None
        self.patch = Patch()
        self.verdict: Verdict | None = None
        self.reward: Reward | None = None
        self.resumption: Resumption | None = None
        self._stop_evidence = ""
        self._failure: Failure | None = None
        self._started = time.monotonic()
        self._entered: dict[Phase, float] = {}
        self._recorded: Trajectory | None = None
        self._bound: Mapping[str, Token[str | int]] = {}

    def __enter__(self) -> Self:
        episode, number = self.attempt.episode, self.attempt.number
        self._bound = structlog.contextvars.bind_contextvars(episode=str(episode), attempt=number)
        self.context.publish(AttemptBegan(episode, number))
        return self

    def __exit__(self, *exception: object) -> None:
        self.context.publish(AttemptEnded(self.attempt.episode, self._recorded))
        structlog.contextvars.reset_contextvars(**self._bound)

    def enter(self, phase: Phase) -> None:
        """Publish the start of a phase."""
        self._entered[phase] = time.monotonic()
        self.context.publish(PhaseBegan(self.attempt.episode, phase))

    def turn(self, turn: Turn) -> None:
        """Publish the end of a turn."""
        self.context.publish(TurnEnded(self.attempt.episode, turn))

    def fail(self, error: EpisodeError) -> None:
        """Record a failure, so no reward is earned. A verdict reached earlier is kept."""
        self._failure = Failure.of(error)
        self.reward = None
        shown: dict[str, object] = {"exception": error.trace} if error.trace else {}
        if error.boundary is Boundary.INTERNAL:
            shown = {"exc_info": error.__cause__}
        if error.fix:
            shown |= {"fix": error.fix}
        write = log.info if error.scarce or self._is_known(error) else log.warning
        write(
            "episode_failed",
            episode=str(self.attempt.episode),
            attempt=self.attempt.number,
            boundary=error.boundary.value,
            error=str(error),
            **shown,
        )

    def _is_known(self, error: EpisodeError) -> bool:
        """Whether this failure of user code was logged before; note it if not."""
        known, lines = self.context.reported, error.trace.rpartition("\n")[0] or str(error)
        is_known = lines in known and bool(error.trace or error.boundary is Boundary.EXTENSION)
        known.add(lines)
        return is_known

    def destroyed(self, error: SandboxDestroyedError) -> None:
        """Record that the policy destroyed its own sandbox: the episode ends and is graded."""
        self.stop_reason = StopReason.SANDBOX_DESTROYED
        self._stop_evidence = str(error)[:_EVIDENCE_CHARS]
        log.info(
            "sandbox_destroyed",
            episode=str(self.attempt.episode),
            attempt=self.attempt.number,
            evidence=self._stop_evidence,
        )

    def reward_input(self, verdict: Verdict) -> RewardInput:
        """Describe the graded episode to the reward terms."""
        return RewardInput(
            instance=self.attempt.instance,
            verdict=verdict,
            patch=self.patch.text,
            turns=tuple(self.agent.episode_turns) if self.agent else (),
            stop_reason=self.stop_reason,
        )

    def trajectory(self) -> Trajectory:
        """Return the record."""
        renderer = self.context.agent.renderer
        main, *others = (self.agent.branches() if self.agent else ()) or (_NO_TOKENS,)
        turns = tuple(self.agent.episode_turns) if self.agent else ()
        fork = self.context.fork
        self._recorded = Trajectory(
            episode=self.attempt.episode,
            policy=self.context.policy(self.attempt.episode),
            token_ids=main.token_ids,
            loss_mask=main.loss_mask,
            logprobs=main.logprobs,
            segments=main.segments,
            turns=turns,
            stop_reason=self.stop_reason,
            patch=self.patch.text,
            verdict=self.verdict,
            reward=self.reward,
            failure=self._failure,
            attempt=self.attempt.number,
            seed=self.context.sampling_for(self.attempt.episode).seed,
            timing=self._timing(),
            spec_digest=self.context.spec_digest,
            software=_software() | self._extensions(),
            finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            token_path=renderer.path if renderer else None,
            branches=tuple(others),
            prompt_logprobs=main.prompt_logprobs,
            routed_experts=main.routed_experts,
            sampling_mask=main.sampling_mask,
            instance_digest=self.attempt.instance.digest,
            prompts=self.agent.prompts() if self.agent else (),
            resumption=self.resumption,
            chat=self._chat(),
            stop_evidence=self._stop_evidence,
            differences=tuple(self.agent.state.differences) if self.agent else (),
            forked_from=fork.record(turns, main) if fork else None,
        )
        return self._recorded

    def _chat(self) -> ChatRecord | None:
        if self.context.agent.renderer is not None:
            return None
        # This also holds for an episode that failed before its first message.
        return (self.agent and self.agent.chat()) or ChatRecord((), ())

    def _extensions(self) -> dict[str, str]:
        return {file.name: f"sha256:{file.sha256}" for file in self.context.extensions}

    def _timing(self) -> Timing:
        now = time.monotonic()
        turns = self.agent.episode_turns if self.agent else []
        start = self._entered.get(Phase.START, self._started)
        agent = self._entered.get(Phase.AGENT, now)
        grade = self._entered.get(Phase.GRADE, now)
        return Timing(
            start_s=round(agent - start, 3),
            engine_s=round(sum(turn.engine_s for turn in turns), 3),
            tools_s=round(sum(turn.tools_s for turn in turns), 3),
            grade_s=round(now - grade, 3),
            total_s=round(now - self._started, 3),
        )


@cache
def _software() -> dict[str, str]:
    return {
        "swe-rollout": version("swe-rollout"),
        "python": platform.python_version(),
        "transformers": version("transformers"),
        "tokenizers": version("tokenizers"),
    }
