"""Wrap the engine, the sandbox and the tools of an episode that has a journal.

Each wrapper asks its tape first, so programs, tools and parsers can't tell whether a response is
new.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.tools.base import (
    ActsOutside,
    Tool,
    Toolbox,
    ToolContext,
    ToolSpec,
    run_in_time,
)
from swe_rollout.agent.tools.marks import MARKS, Marks
from swe_rollout.context import Attempt, JobContext
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.chat.base import ChatRequest, ChatResponse
from swe_rollout.engine.wrapped import wrapped_engine
from swe_rollout.journal.entries import Done, FileRead, Observed, Ran, Said, Sampled, digest_of
from swe_rollout.journal.tape import TURN, DivergedError, Tape
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.wrapped import AbsentSandbox, Operation, OperationKind, WrappedSandbox
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import Generation, Observation, Turn

_T = TypeVar("_T")
_R = TypeVar("_R", Generation, ChatResponse)
_ANSWERS: Final[Mapping[OperationKind, type[Any]]] = {
    OperationKind.EXEC: Ran,
    OperationKind.READ: FileRead,
    OperationKind.WRITE: Done,
    OperationKind.END: Done,
}


class Barriers(Protocol):
    """Hooks that run before any request to the outside world."""

    async def before_turn(self) -> None:
        """Wait until the engine may be called for a turn."""
        ...

    async def before_call(self) -> None:
        """Wait until a tool may change the sandbox or anything else."""
        ...


@dataclass(frozen=True, slots=True)
class Taped:
    """Routes an agent's requests to the outside world through a tape."""

    tape: Tape
    barriers: Barriers

    def parts(self, parts: AgentParts) -> AgentParts:
        """Return the parts with an engine and tools that ask the tape.

        The tape holds a tool's results if the tool acts outside the sandbox.
        """
        engine = wrapped_engine(parts.engine, self._turn)
        tools = Toolbox(
            TapedTool(tool, self) if isinstance(tool, ActsOutside) and tool.acts_outside else tool
            for tool in parts.toolbox.tools
        )
        return replace(parts, engine=engine, toolbox=tools)

    def sandbox(self, sandbox: Sandbox) -> Sandbox:
        """Return a sandbox whose operations ask the tape."""
        return WrappedSandbox(sandbox, self._operation)

    async def call(self, request: str, call: Callable[[], Awaitable[_T]], kind: type[Any]) -> _T:
        """Return the response to a request; `kind` is the class of its entry."""

        async def ask() -> _T:
            await self.barriers.before_call()
            return await call()

        return await self.tape.call(request, ask, kind)

    async def _operation(self, operation: Operation, call: Callable[[], Awaitable[_T]]) -> _T:
        kind = operation.kind
        return await self.call(digest_of(kind.value, *operation.parts), call, _ANSWERS[kind])

    async def _turn(
        self, request: GenerateRequest | ChatRequest, call: Callable[[], Awaitable[_R]]
    ) -> _R:
        async def ask() -> _R:
            await self.barriers.before_turn()
            return await call()

        kind = Said if isinstance(request, ChatRequest) else Sampled
        return await self.tape.turn(_turn_digest(request), ask, kind)


class TapedTool(Tool):
    """A tool whose results are taped: each call is carried out only once."""

    def __init__(self, tool: Tool, taped: Taped) -> None:
        self._tool = tool
        self._taped = taped

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    @property
    def keeps_time(self) -> bool:
        return True

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        async def ask() -> Observation:
            return await run_in_time(self._tool, arguments, sandbox, context)

        request = digest_of("tool", self.spec.name, dict(arguments))
        return await self._taped.call(request, ask, Observed)


def taped_context(
    attempt: Attempt,
    context: JobContext,
    sandbox: Sandbox,
    taped: Taped,
    *,
    on_turn: Callable[[Turn], None],
) -> AgentContext:
    """Return the context of an attempt's agent, with engine, sandbox and tools taped."""
    tape = taped.tape

    def report(turn: Turn) -> None:
        # Turns of an earlier life say nothing about the engine or its speed.
        if not tape.is_replaying:
            on_turn(turn)

    agent = context.agent_context(
        attempt,
        taped.sandbox(sandbox),
        on_turn=report,
        parts=taped.parts(context.agent),
    )
    tape.clock = agent.clock
    return agent


@contextmanager
def playing_on(tape: Tape, seed: str) -> Iterator[None]:
    """Run an agent program on a tape inside the block, deriving its marks from the seed."""
    token = MARKS.set(Marks(seed))
    try:
        yield
    except Exception:
        # The program may have turned it into another error.
        if tape.diverged is not None:
            raise tape.diverged from None
        raise
    finally:
        MARKS.reset(token)


_ANY: Final = EpisodeId("", "", 0)


def _turn_digest(request: GenerateRequest | ChatRequest) -> str:
    # Leave out the episode and its sampling: a fork inherits another episode's turns. The spec's
    # digest in the header ensures that an attempt resumes with its own sampling.
    if isinstance(request, ChatRequest):
        asked = replace(request, episode=_ANY, sampling=Sampling(), clock=None, tools=())
        return digest_of(TURN, asked, request.tools)
    return digest_of(
        TURN,
        request.turn,
        request.branch,
        request.input_ids.proof,
        request.max_new_tokens,
        request.stop_token_ids,
        request.replay,
    )


_ENDED = "the agent had ended, and asked for something new"


def no_sandbox(workdir: str) -> Sandbox:
    """Return a placeholder for a former sandbox. Any new request to it has diverged."""
    return AbsentSandbox(workdir, lambda: DivergedError(_ENDED))


class NoTurns:
    """Barriers of an agent that has ended, which makes no turns or calls."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    async def before_turn(self) -> None:
        raise self._tape.diverge(_ENDED)

    async def before_call(self) -> None:
        raise self._tape.diverge(_ENDED)


class Unwritten:
    """Barriers of an attempt that is not journaled."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    async def before_turn(self) -> None:
        self._tape.take_noted()

    async def before_call(self) -> None:
        """Do nothing, because nothing has to be durable."""
