"""Which step an agent may take next; any other step is refused with the reason.

Used by `context`, whose agent is a `StepOrder`; `Origin` decides which agents may be started.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from swe_rollout.agent.branches import EpisodeState, OpenBranch
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.agent.sampled_turn import TurnBuilder
from swe_rollout.agent.tools.marks import ACTING
from swe_rollout.errors import InternalError, MisuseError, caught
from swe_rollout.types.episode import StopReason

MAX_DEPTH = 3
"""Levels of sub-agents below the agent of the episode."""
MAX_SUB_AGENTS = 64
"""Sub-agents of one episode, at all levels."""
RESUMABLE = (None, StopReason.FINISHED, StopReason.SUBMITTED)
"""Ends that the policy chose, which a message can resume; all other stop reasons are limits."""
_ORDER = (
    "await context.begin(), then turn() or finish() until it returns a stop reason, and return it; "
    "say() and spawn() come after begin()"
)


def misuse(why: str, fix: str = _ORDER) -> MisuseError:
    """Return the error for a step that is not allowed."""
    return MisuseError("the agent asked for a step that can't be taken", why=why, fix=fix)


def first_messages(parts: AgentParts, messages: str | Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages with which a branch starts. Raises MisuseError if it can't."""
    given: tuple[object, ...] = parts.prompts.first(messages)
    first = tuple(each for each in given if isinstance(each, Message))
    if len(first) < len(given):
        found = {type(each).__name__ for each in given if not isinstance(each, Message)}
        raise misuse(f"a {min(found)} is no message", "give a text, or a list of Message")
    if not any(m.role is MessageRole.USER and m.content.strip() for m in first):
        raise misuse("an agent begins with a user message, and was given none", "give it a text")
    return first


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
        """Raise MisuseError if this agent may not start another sub-agent."""
        if not self.can_spawn:
            raise misuse(
                f"there are {MAX_DEPTH} levels of sub-agents, and {MAX_SUB_AGENTS} in an episode, "
                "at most",
                "ask `can_spawn` before",
            )

    def spawned(self, branch: OpenBranch, turns: int | None) -> Origin:
        """Count a sub-agent that takes at most `turns` turns, and return its origin."""
        if turns is not None and turns < 1:
            raise misuse(f"a sub-agent was given {turns} turns", "give it 1 or more, or None")
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

    @property
    def state(self) -> EpisodeState:
        """The state of the episode, for programs that take its turns by other steps."""
        return self._state

    def _begun(self) -> OpenBranch:
        if self._branch is None:
            raise misuse("begin() was not called and awaited before")
        if self._state.failure is not None:
            raise misuse("the episode has failed, and nothing can follow")
        if self._state.is_over:
            raise misuse("the agent program has returned, and the episode with it")
        return self._branch

    def _ready(self) -> OpenBranch:
        branch = self._begun()
        if self._is_busy:
            raise misuse(
                "a step was begun before the last one ended",
                "await each step before the next; only sub-agents run side by side",
            )
        return branch

    def _open_turn(self) -> TurnBuilder:
        self._ready()
        if self._pending is None or self.stop is not None:
            raise misuse("there is no turn whose calls can be answered")
        return self._pending

    def _not_at_limit(self) -> OpenBranch:
        branch = self._ready()
        if self.stop not in RESUMABLE:
            raise misuse(
                f"a limit was reached ({self.stop}), and nothing can follow",
                "ask `context.can_continue` first, and return the stop reason if it is false",
            )
        return branch

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Allow one step at a time; record a failure inside the block, which ends the episode."""
        self._is_busy = True
        acting = ACTING.set(self._branch.index if self._branch else 0)
        try:
            with caught(InternalError, "a step of the agent"):
                yield
        except Exception as error:
            self._state.failure = error
            raise
        finally:
            self._is_busy = False
            ACTING.reset(acting)
