"""Which step an agent may take next; any other step is refused with the reason.

Used by `context`, whose agent is a `StepOrder`; `Origin` decides which agents may be started.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from swe_rollout.agent.branches import EpisodeState, OpenBranch
from swe_rollout.agent.sampled_turn import TurnBuilder
from swe_rollout.agent.tools.marks import ACTING
from swe_rollout.errors import InternalError
from swe_rollout.types.episode import StopReason

MAX_DEPTH = 3
"""Levels of sub-agents below the agent of the episode."""
MAX_SUB_AGENTS = 64
"""Sub-agents of one episode, at all levels."""
RESUMABLE = (None, StopReason.FINISHED, StopReason.SUBMITTED)
"""Ends that the policy chose, which a message can resume; all other stop reasons are limits."""


def misuse(why: str, fix: str = "correct the agent program") -> InternalError:
    """Return the error for a step that is not allowed."""
    return InternalError("the agent asked for a step that can't be taken", why=why, fix=fix)


@dataclass(frozen=True, slots=True)
class Origin:
    """How an agent was started."""

    state: EpisodeState
    branch: OpenBranch | None
    """The branch that started it; None for the agent of the episode."""
    depth: int
    """The number of agents above it."""
    turns: int
    """The limit of its own turns."""

    @property
    def can_spawn(self) -> bool:
        """Whether this agent may start another sub-agent."""
        return self.depth < MAX_DEPTH and self.state.sub_agents < MAX_SUB_AGENTS

    def check_room(self) -> None:
        """Raise InternalError if this agent may not start another sub-agent."""
        if not self.can_spawn:
            raise misuse(
                f"there are {MAX_DEPTH} levels of sub-agents, and {MAX_SUB_AGENTS} in an episode, "
                "at most",
                "ask `can_spawn` before",
            )

    def spawned(self, branch: OpenBranch, turns: int | None) -> Origin:
        """Count a sub-agent that takes at most `turns` turns, and return its origin."""
        self.state.sub_agents += 1
        limit = self.turns if turns is None else min(turns, self.turns)
        return Origin(self.state, branch, self.depth + 1, limit)


class StepOrder:
    """The state of one agent that decides which steps it may take."""

    def __init__(self, state: EpisodeState) -> None:
        self.stop: StopReason | None = None
        """Why the agent stopped in its last step; None if it can go on."""
        self._state = state
        self._branch: OpenBranch | None = None
        self._pending: TurnBuilder | None = None
        self._is_busy = False

    def _begun(self) -> OpenBranch:
        if self._branch is None:
            raise misuse("begin() comes first")
        if self._state.failure is not None:
            raise misuse("the episode has failed, and nothing can follow")
        if self._state.is_over:
            raise misuse("the agent program has returned, and the episode with it")
        return self._branch

    def _ready(self) -> OpenBranch:
        branch = self._begun()
        if self._is_busy:
            raise misuse("a step was begun before the last one ended")
        return branch

    def _open_turn(self) -> TurnBuilder:
        self._ready()
        if self._pending is None or self.stop is not None:
            raise misuse("there is no turn whose calls can be answered")
        return self._pending

    def _not_at_limit(self) -> OpenBranch:
        branch = self._ready()
        if self.stop not in RESUMABLE:
            raise misuse(f"a limit was reached ({self.stop}), and nothing can follow")
        return branch

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Allow one step at a time; record a failure inside the block, which ends the episode."""
        self._is_busy = True
        acting = ACTING.set(self._branch.index if self._branch else 0)
        try:
            yield
        except Exception as error:
            self._state.failure = error
            raise
        finally:
            self._is_busy = False
            ACTING.reset(acting)
