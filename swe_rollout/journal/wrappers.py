"""The engine, the sandbox and the tools of an episode, as one that has a journal uses them.

Each asks its tape first. So neither programs nor tools nor parsers know whether an answer is new.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, TypeVar

from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.tools.base import ActsOutside, Tool, Toolbox, ToolContext, ToolSpec
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.chat.base import ChatEngine, ChatRequest, ChatResponse
from swe_rollout.journal.entries import (
    Answer,
    Done,
    FileRead,
    Observed,
    Ran,
    Said,
    Sampled,
    digest_of,
)
from swe_rollout.journal.tape import TURN, Tape, other_answer
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, ExecResult, Sandbox
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import Generation, Observation

_T = TypeVar("_T")


class Barriers(Protocol):
    """What comes before anything is asked of the world itself."""

    async def before_turn(self) -> None:
        """Return when the engine may be asked for a turn."""
        ...

    async def before_call(self) -> None:
        """Return when the sandbox may be changed, or whatever else a tool acts on."""
        ...


def journaled_parts(parts: AgentParts, tape: Tape, barriers: Barriers) -> AgentParts:
    """Return the parts with an engine and tools that ask the tape."""
    engine: TokenEngine | ChatEngine
    if parts.chat is None:
        engine = JournaledEngine(parts.tokens.engine, tape, barriers)
    else:
        engine = JournaledChatEngine(parts.chat, tape, barriers)
    return replace(parts, engine=engine, toolbox=JournaledToolbox(parts.toolbox, tape, barriers))


class JournaledEngine(TokenEngine):
    """An engine whose turns are on a tape."""

    def __init__(self, engine: TokenEngine, tape: Tape, barriers: Barriers) -> None:
        self._engine = engine
        self._tape = tape
        self._barriers = barriers

    async def info(self) -> EngineInfo:
        return await self._engine.info()

    async def generate(self, request: GenerateRequest) -> Generation:
        async def ask() -> Generation:
            await self._barriers.before_turn()
            return await self._engine.generate(request)

        return await self._tape.turn(
            _turn_digest(request), ask, write=Sampled.of, read=_as_generation
        )

    def release(self, episode: EpisodeId) -> None:
        self._engine.release(episode)

    async def aclose(self) -> None:
        """Do nothing: the engine is the job's."""


class JournaledChatEngine(ChatEngine):
    """A chat engine whose turns are on a tape."""

    def __init__(self, engine: ChatEngine, tape: Tape, barriers: Barriers) -> None:
        self._engine = engine
        self._tape = tape
        self._barriers = barriers

    async def info(self) -> EngineInfo:
        return await self._engine.info()

    async def respond(self, request: ChatRequest) -> ChatResponse:
        async def ask() -> ChatResponse:
            await self._barriers.before_turn()
            return await self._engine.respond(request)

        asked = replace(request, episode=_ANY, sampling=Sampling(), clock=None, tools=())
        digest = digest_of(TURN, asked, request.tools)
        return await self._tape.turn(digest, ask, write=Said, read=_as_response)

    def release(self, episode: EpisodeId) -> None:
        self._engine.release(episode)

    async def aclose(self) -> None:
        """Do nothing: the engine is the job's."""


class JournaledSandbox(Sandbox):
    """A sandbox whose operations are on a tape."""

    def __init__(self, sandbox: Sandbox, tape: Tape, barriers: Barriers) -> None:
        self._sandbox = sandbox
        self._tape = tape
        self._barriers = barriers

    @property
    def workdir(self) -> str:
        return self._sandbox.workdir

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
        asked = command if isinstance(command, str) else tuple(command)
        # Neither values of variables, which may be secrets, nor the time, which may have run on.
        request = digest_of("exec", asked, cwd, sorted(env or ()), stdin, max_output)
        call = partial(
            self._sandbox.exec,
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout_s=timeout_s,
            max_output=max_output,
        )
        return await self._tape.call(
            request, partial(self._after, call), write=_ran, read=_as_result
        )

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        call = partial(self._sandbox.read_file, path, max_bytes=max_bytes)
        request = digest_of("read", path, max_bytes)
        return await self._tape.call(
            request, partial(self._after, call), write=FileRead, read=_as_data
        )

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        call = partial(self._sandbox.write_file, path, data, mode=mode)
        await self._tape.call(
            digest_of("write", path, data, mode),
            partial(self._after, call),
            write=_done,
            read=_as_done,
        )

    async def end_processes(self) -> None:
        call = partial(self._after, self._sandbox.end_processes)
        await self._tape.call(digest_of("end"), call, write=_done, read=_as_done)

    async def close(self) -> None:
        await self._sandbox.close()

    async def _after(self, call: Callable[[], Awaitable[_T]]) -> _T:
        await self._barriers.before_call()
        return await call()


class JournaledToolbox(Toolbox):
    """Tools; what those that act outside of the sandbox returned is on a tape."""

    def __init__(self, toolbox: Toolbox, tape: Tape, barriers: Barriers) -> None:
        super().__init__(
            JournaledTool(tool, tape, barriers)
            if isinstance(tool, ActsOutside) and tool.acts_outside
            else tool
            for tool in toolbox.tools
        )


class JournaledTool(Tool):
    """A tool whose results are on a tape: carried out once, whatever it does out there."""

    def __init__(self, tool: Tool, tape: Tape, barriers: Barriers) -> None:
        self._tool = tool
        self._tape = tape
        self._barriers = barriers

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        async def ask() -> Observation:
            await self._barriers.before_call()
            return await self._tool.run(arguments, sandbox, context)

        request = digest_of("tool", self.spec.name, dict(arguments))
        return await self._tape.call(request, ask, write=Observed, read=_as_observation)


_ANY: Final = EpisodeId("", "", 0)


def _turn_digest(request: GenerateRequest) -> str:
    # Neither whose turn it is nor its sampling: a fork inherits the turns of another episode. That
    # an attempt goes on with its own sampling is said by the spec's digest in the header.
    return digest_of(
        TURN,
        request.turn,
        request.branch,
        len(request.input_ids),
        request.input_ids.ids.tobytes(),
        request.max_new_tokens,
        request.stop_token_ids,
        request.replay,
    )


def _as_generation(answer: Answer) -> Generation:
    if isinstance(answer, Sampled):
        return answer.generation()
    raise other_answer(answer)


def _as_response(answer: Answer) -> ChatResponse:
    if isinstance(answer, Said):
        return answer.response
    raise other_answer(answer)


def _ran(result: ExecResult) -> Ran:
    return Ran(
        result.exit_code,
        result.stdout,
        result.stderr,
        result.timed_out,
        result.stdout_bytes,
        result.stderr_bytes,
        result.duration_s,
    )


def _as_result(answer: Answer) -> ExecResult:
    if isinstance(answer, Ran):
        return ExecResult(
            answer.exit_code,
            answer.stdout,
            answer.stderr,
            answer.timed_out,
            answer.stdout_bytes,
            answer.stderr_bytes,
            answer.duration_s,
        )
    raise other_answer(answer)


def _as_data(answer: Answer) -> bytes:
    if isinstance(answer, FileRead):
        return answer.data
    raise other_answer(answer)


def _done(value: None) -> Done:
    del value
    return Done()


def _as_done(answer: Answer) -> None:
    if not isinstance(answer, Done):
        raise other_answer(answer)


def _as_observation(answer: Answer) -> Observation:
    if isinstance(answer, Observed):
        return answer.observation
    raise other_answer(answer)
