"""An episode: its address, how it ended, its failure, and how it was resumed after a crash."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

# msgspec reads the annotations of these classes at run time.
from swe_rollout.errors import Boundary, EpisodeError


@dataclass(frozen=True, slots=True)
class EpisodeId:
    """The address of one episode, `job/instance/sample`, in the CLI, logs, the store and labels."""

    job: str
    instance: str
    sample: int

    def __str__(self) -> str:
        return f"{self.job}/{self.instance}/{self.sample}"

    @classmethod
    def parse(cls, address: str) -> EpisodeId:
        """Parse an address; raise ValueError if it is not one."""
        job, instance, sample = address.split("/")
        return cls(job, instance, int(sample))

    @property
    def group(self) -> str:
        """`job/instance`: the samples that a trainer compares with each other."""
        return f"{self.job}/{self.instance}"

    @property
    def digest(self) -> str:
        """A digest of 12 hex characters, where the address is too long (labels, pod names)."""
        return hashlib.sha256(str(self).encode()).hexdigest()[:12]


class StopReason(StrEnum):
    """Why an episode ended. Not a failure."""

    SUBMITTED = "submitted"
    FINISHED = "finished"
    """The policy ended its turn without a tool call."""
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"  # noqa: S105 - a stop reason
    """One generation reached `maxNewTokens`; the cut turn is not executed."""
    CONTEXT_FULL = "context_full"
    TIME_LIMIT = "time_limit"
    FORMAT_ERRORS = "format_errors"
    REPEATED = "repeated"
    SANDBOX_DESTROYED = "sandbox_destroyed"
    """A command of the policy ended its sandbox, as `Trajectory.stop_evidence` shows. Its work up
    to the last turn in the journal is graded, if there is any."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Failure:
    """An infrastructure failure: its owner, and whether to retry. Never a reward."""

    boundary: Boundary
    type: str
    message: str
    retryable: bool
    scarce: bool = False
    """Whether it could not start for lack of capacity: no node, no quota."""
    trace: str = ""
    """The lines of the user's own code that raised, as Python prints them; empty if other code
    did."""
    fix: str = ""
    """What to do; empty if the error does not say."""

    @classmethod
    def of(cls, error: EpisodeError) -> Failure:
        """Build the record of an error that ended an attempt."""
        name, message = type(error).__name__, str(error)
        return cls(
            error.boundary,
            name,
            message,
            error.retryable,
            error.scarce,
            trace=error.trace,
            fix=error.fix,
        )


@dataclass(frozen=True, slots=True)
class Resumption:
    """How an episode was resumed after its process died or its sandbox was lost."""

    times: int
    """How often the episode was resumed."""
    lost: tuple[str, ...] = ()
    """What was not there any more, such as `process: python -m http.server`."""
    attached: int = 0
    """How often it was resumed in its original sandbox, still alive with all processes; otherwise
    it was resumed in a rebuilt one, or in none if only grading was left."""


@dataclass(frozen=True, slots=True)
class ForkedFrom:
    """The turn of another episode from which an episode was forked, and what it inherited."""

    episode: str
    """The other episode: `job/instance/sample`."""
    job_uri: str
    """The URI of the other episode's job."""
    turn: int
    """The first turn that is the episode's own; the turns before it are inherited."""
    digest: str
    """SHA-256 of the journal from which it was forked."""
    tokens: int
    """The number of inherited tokens, `[0, tokens)` of the main branch."""
    sampled: int
    """How many of them the policy sampled; the columns have their ids, logprobs and mask."""
    trained: bool = False
    """Whether to train on them; see `Trajectory.trained`."""
    lost: tuple[str, ...] = ()
    """What was not there any more, such as `process: python -m http.server`."""


@dataclass(frozen=True, slots=True)
class KeptJournal:
    """The journal of an episode, from which others can be forked: an object of the store."""

    key: str
    """The key of the object, packed with zstd."""
    bytes: int
    """The unpacked size."""
    sha256: str
    """The digest of the unpacked bytes."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds by phase."""

    start_s: float = 0.0
    """Sandbox start and repository preparation."""
    engine_s: float = 0.0
    tools_s: float = 0.0
    grade_s: float = 0.0
    total_s: float = 0.0
