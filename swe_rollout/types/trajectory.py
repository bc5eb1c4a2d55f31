"""Trajectory: the record of one episode, and its parts. `trajectory_json` has its stored form."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from swe_rollout.spec.outcomes import EpisodeOutcome
from swe_rollout.text.formatting import format_duration

# msgspec reads the annotations of these classes at run time.
from swe_rollout.text.notebook_html import FOLD_CHARS, ROWS, Table, card
from swe_rollout.text.redaction import redact
from swe_rollout.tokens.branch import Branch, BranchKind
from swe_rollout.tokens.log import Segment
from swe_rollout.tokens.replay import RoutedExperts, SamplingMask
from swe_rollout.types.episode import (
    EpisodeId,
    Failure,
    ForkedFrom,
    KeptJournal,
    Resumption,
    StopReason,
    Timing,
)
from swe_rollout.types.turn import Turn
from swe_rollout.types.verdict import Reward, Verdict, VerdictStatus

SCHEMA = 1
"""The schema of a record with one branch."""
BRANCHED_SCHEMA = 2
"""The schema of a record with several branches."""
_CALLS_SHOWN = 8
"""How many calls of a turn a notebook shows."""


class Retention(StrEnum):
    """How reasoning of earlier turns is kept."""

    ALL = "all"
    """It stays in context even if the chat template drops it. Serve evaluations the same way."""


@dataclass(frozen=True, slots=True)
class TokenPath:
    """How messages were turned into tokens, and tokens into calls."""

    family: str
    tool_format: str
    fingerprint: str
    """Fingerprint of the vocabulary and the chat template."""
    retention: Retention = Retention.ALL
    template_drops_reasoning: bool = False
    """Whether the chat template itself would have dropped reasoning of earlier turns."""
    ends: tuple[str, ...] = ()
    """Texts of the tokens at which a turn may end; empty in older records."""


@dataclass(frozen=True, slots=True)
class ChatLine:
    """One message of a conversation, as text."""

    role: str
    """system, user, assistant or tool."""
    text: str
    branch: int = 0
    turn: int | None = None
    """The turn of a policy's message, which has its calls; None for other messages."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How a harness told a conversation otherwise than it was, or why that opened a branch."""

    turn: int
    """The turn that was sampled for that request."""
    branch: int
    reason: str


@dataclass(frozen=True, slots=True)
class ChatRecord:
    """The conversations of an episode over a chat API, which has no tokens."""

    models: tuple[str, ...]
    """The models that responded, as the API names them."""
    messages: tuple[ChatLine, ...]
    """The messages of all branches, one branch after the other."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The complete record of one episode. Trainable if `failure` and `chat` are None."""

    episode: EpisodeId
    policy: str
    """Engine and model, such as `sglang:Qwen/Qwen3-8B` or `scripted:gold`."""
    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    """Finite where the mask is 1, null elsewhere."""
    segments: tuple[Segment, ...]
    turns: tuple[Turn, ...]
    stop_reason: StopReason | None
    """None if a failure ended the episode."""
    patch: str
    verdict: Verdict | None
    reward: Reward | None
    """None unless the grader ran."""
    failure: Failure | None
    attempt: int
    """The number of the attempt, from 1."""
    seed: int | None
    """The sampling seed sent to the engine, if any."""
    timing: Timing
    spec_digest: str
    software: dict[str, str]
    """Versions of the software that produced the record."""
    finished_at: str
    """RFC 3339, UTC."""
    token_path: TokenPath | None = None
    """None in records from before the field was added."""
    branches: tuple[Branch, ...] = ()
    """Further samples of the same episode: of sub-agents, and of replaced histories. The columns
    above are the main branch."""
    prompt_logprobs: tuple[float | None, ...] = ()
    """If recorded: logprobs of tokens the harness wrote, null elsewhere. Otherwise empty."""
    routed_experts: RoutedExperts | None = None
    sampling_mask: SamplingMask | None = None
    instance_digest: str = ""
    """Digest of the task's content; empty in records from before the field was added."""
    prompts: tuple[ChatLine, ...] = ()
    """The messages that each branch starts with. Absent from the stored form if empty, as in
    records from before the field was added."""
    resumption: Resumption | None = None
    """How the attempt was resumed. Absent from the stored form if it was not."""
    chat: ChatRecord | None = None
    """Set if the episode used a chat API: there are no tokens, and nothing to train on. Absent from
    the stored form otherwise."""

    stop_evidence: str = ""
    """Evidence that the policy ended its own sandbox. Absent from the stored form if empty."""
    forked_from: ForkedFrom | None = None
    """Where the episode was forked from. Absent from the stored form if it was not forked."""
    journal: KeptJournal | None = None
    """The journal that `swe-rollout fork` uses. Absent from the stored form if none is kept."""
    differences: tuple[Difference, ...] = ()
    """Of an agent that speaks a chat API. Absent from the stored form if there are none."""

    def __repr__(self) -> str:
        failed = self.failure and f"failed ({self.failure.type})"
        ended = failed or (self.stop_reason.value if self.stop_reason else "not ended")
        reward = "no reward" if self.reward is None else f"reward {self.reward.value:g}"
        size = f"{len(self.turns)} turns, {self.token_count} tokens"
        if self.branches:
            size += f" in {len(self.branches) + 1} branches"
        return f"<Trajectory {self.episode}: {ended}, {reward}, {size}>"

    def _repr_html_(self) -> str:
        """Return the record as a card for notebooks: bounded, escaped, nothing is loaded."""
        failure, reward, timing = self.failure, self.reward, self.timing
        terms = " · ".join(
            f"{each.name} {each.score:g} × {each.weight:g}"
            for each in (() if reward is None else reward.terms)
        )
        seconds = (f"{name} {format_duration(value)}" for name, value in _seconds(timing).items())
        facts = {
            "ended": str(self.stop_reason or ""),
            "failure": f"{failure.boundary}: {failure.type}: {failure.message}" if failure else "",
            "verdict": str(self.verdict.status) if self.verdict else "",
            "reward": f"{reward.value:g} ({terms})" if reward else "none",
            "turns": str(len(self.turns)),
            "tokens": f"{self.token_count:,}, {self.sampled_count:,} of them sampled",
            "time": " · ".join(seconds),
            "policy": self.policy,
            "attempt": str(self.attempt),
        }
        rows = [
            [
                str(turn.index),
                ", ".join(call.name or call.status for call in turn.tool_calls[:_CALLS_SHOWN]),
                str(turn.completion_tokens),
                format_duration(turn.engine_s),
                format_duration(turn.tools_s),
                turn.finish_reason.value,
            ]
            for turn in self.turns[:ROWS]
        ]
        columns = ("turn", "calls", "tokens", "engine", "tools", "finish")
        table = Table(columns, rows, total=len(self.turns))
        folds = {"patch": redact(self.patch[: 2 * FOLD_CHARS])}
        return card(f"Trajectory {self.episode}", facts, table=table, folds=folds)

    @property
    def schema(self) -> int:
        """The version of the stored form of this record."""
        return BRANCHED_SCHEMA if self.branches else SCHEMA

    @property
    def main_branch(self) -> Branch:
        """The columns of the record itself as a branch."""
        return Branch(
            index=0,
            kind=BranchKind.MAIN,
            parent=None,
            parent_length=0,
            token_ids=self.token_ids,
            loss_mask=self.loss_mask,
            logprobs=self.logprobs,
            segments=self.segments,
            prompt_logprobs=self.prompt_logprobs,
            routed_experts=self.routed_experts,
            sampling_mask=self.sampling_mask,
        )

    @property
    def samples(self) -> tuple[Branch, ...]:
        """All branches, the main one first, which contain each token to train on once."""
        return (self.main_branch, *self.branches)

    @property
    def trained(self) -> tuple[Branch, ...]:
        """All branches as trainers get them: `samples`, with mask 0 on inherited tokens of a fork.

        All forks of a turn share the tokens before it, which would otherwise be trained on once per
        fork. `spec.fork.trainInherited` keeps their mask.
        """
        if not (length := self.untrained_tokens):
            return self.samples
        return (self.main_branch.untrained(length), *self.branches)

    @property
    def untrained_tokens(self) -> int:
        """Number of leading tokens of the main branch that are inherited and not trained on."""
        fork = self.forked_from
        return 0 if fork is None or fork.trained else fork.tokens

    @property
    def token_count(self) -> int:
        """Number of tokens read and sampled, over all branches."""
        return len(self.token_ids) + sum(len(branch.token_ids) for branch in self.branches)

    @property
    def sampled_count(self) -> int:
        """Number of tokens the policy sampled, over all branches."""
        return sum(sum(branch.loss_mask) for branch in self.samples)

    @property
    def masked(self) -> bool:
        """Whether trainers must exclude the record: the episode failed, so it has no reward."""
        return self.failure is not None

    @property
    def resolved(self) -> bool:
        """Whether the tests show that the task is solved."""
        return self.verdict is not None and self.verdict.resolved

    @property
    def outcome(self) -> EpisodeOutcome:
        """How the episode ended, for counters."""
        return EpisodeOutcome(
            resolved=self.resolved,
            masked=self.masked,
            reward=None if self.reward is None else self.reward.value,
            stop_reason=None if self.stop_reason is None else self.stop_reason.value,
            failure=None if self.failure is None else self.failure.type,
            tampered=self.verdict is not None and self.verdict.status is VerdictStatus.TAMPERED,
            unproven=self.resolved and self.verdict is not None and bool(self.verdict.unproven),
        )


def _seconds(timing: Timing) -> dict[str, float]:
    return {
        "start": timing.start_s,
        "engine": timing.engine_s,
        "tools": timing.tools_s,
        "grade": timing.grade_s,
        "total": timing.total_s,
    }
