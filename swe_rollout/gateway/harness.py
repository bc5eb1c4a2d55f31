r"""An agent that is a program: it runs in the sandbox, unchanged, and speaks a chat API.

    agent: {use: harness, with: {command: "mini -t \"$TASK\" -y"}}

The API is at an address of the sandbox's loopback, which its variables name. The episode ends with
the program, or with a limit, whatever the program does then.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final

from pydantic import Field, StringConstraints

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.outside import Outside
from swe_rollout.agent.prompts import MessageRole
from swe_rollout.agent.tools.base import encodable
from swe_rollout.agent.tools.marks import new_mark
from swe_rollout.errors import ExtensionFailedError, SandboxError
from swe_rollout.gateway.asked import decode
from swe_rollout.gateway.conversations import Conversations
from swe_rollout.gateway.door import Door, ProgramEnd
from swe_rollout.gateway.nodes import EndedError
from swe_rollout.gateway.server import Api, serving
from swe_rollout.gateway.values import BadRequestError, Request
from swe_rollout.journal.tape import DivergedError
from swe_rollout.spec.model import Model
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import StopReason

_SHOWN: Final = 1000
_MOST_STRING: Final = 128 << 10
"""The bytes of one argument or variable that Linux refuses (MAX_ARG_STRLEN)."""
_SHORT_S: Final = 0.01


@dataclass(slots=True, eq=False)
class OneSession:
    """The only session of a server: that of the episode."""

    key: str = field(repr=False)
    conversations: Conversations
    running: int = 0
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class OneEpisode:
    """The keys of a server with one session."""

    session: OneSession

    def __iter__(self) -> Iterator[OneSession]:
        yield self.session

    def by_key(self, key: str) -> OneSession | None:
        """Return the session, if the key is its own."""
        is_own = secrets.compare_digest(
            key.encode(errors="surrogatepass"), self.session.key.encode()
        )
        return self.session if is_own else None


class Harness(Model):
    """Runs a program in the sandbox as the agent of an episode."""

    command: Annotated[str, StringConstraints(min_length=1, max_length=65_536)]
    """The program, for the shell. `$TASK` is the task; `$OPENAI_BASE_URL`, `$ANTHROPIC_BASE_URL`
    and `$GOOGLE_GEMINI_BASE_URL` are the APIs' addresses, and `$OPENAI_API_KEY`,
    `$ANTHROPIC_API_KEY` and `$GEMINI_API_KEY` the key of the episode."""
    env: Annotated[dict[str, str], Field(max_length=64)] = Field(default_factory=dict)
    """Further variables. Values may name others, such as `$OPENAI_API_KEY`: the shell has them."""

    runs_in_sandbox: ClassVar[bool] = True

    async def __call__(self, context: AgentContext) -> StopReason:
        """Run the program until it ends, or the episode does."""
        played = Conversations.of_agent(context)
        # The same in each life of the episode: the program keeps it.
        key = new_mark(32)
        clock, outside = context.clock, context.outside
        clock.reset(context.parts.limits.episode_seconds)
        if outside is not None and (stop := await repeat(played, outside)) is not None:
            await Door(outside.sandbox, 0, clock).stop()
            return stop
        async with serving(Api(OneEpisode(OneSession(key, played))).routes()) as port:
            sandbox = outside.sandbox if outside else context.sandbox
            door = Door(sandbox, port, clock)
            try:
                if outside is not None and outside.is_running:
                    await door.take()
                else:
                    await door.open(*self._program(context, key))
                stop = await self._wait(door, played, clock)
            finally:
                await played.close()
            if outside is not None:
                # Before the listener ends: whoever finds none knows why.
                stop = await outside.stop(stop)
            await door.stop()
        return stop

    def _program(self, context: AgentContext, key: str) -> tuple[str, dict[str, str]]:
        """Return what the listener runs, and the variables that it has."""
        task = "\n\n".join(m.content for m in context.task if m.role is MessageRole.USER)
        command, env = f"{_EXPORTS}\n{self.command}", self.env | {"TASK": encodable(task)}
        _require_fit("agent.harness.command", command)
        for name, value in env.items():
            what = "the task" if name == "TASK" else f"agent.harness.env.{name}"
            _require_fit(what, f"{name}={value}")
        return command, env | {"DOOR_KEY": key}

    async def _wait(self, door: Door, played: Conversations, clock: Deadline) -> StopReason:
        """Return why the program stopped: it ended, its door is gone, or the episode is over.

        Raises what broke the carrying: a harness that lost us is not to blame for what it then did.
        """
        carrying = asyncio.create_task(door.carry())
        over = asyncio.create_task(played.over.wait())
        try:
            # A harness may ask for ever, or end as if all was well, when nothing is answered.
            while not (carrying.done() or over.done() or clock.expired):
                await asyncio.wait(
                    [carrying, over],
                    timeout=max(clock.remaining_s, _SHORT_S),
                    return_when=asyncio.FIRST_COMPLETED,
                )
            is_over = carrying.done() or over.done()
        finally:
            for task in (carrying, over):
                task.cancel()
            (broken, _) = await asyncio.gather(carrying, over, return_exceptions=True)
        if isinstance(broken, Exception):
            raise SandboxError("the harness lost its connection", why=str(broken)) from broken
        if played.state.failure is not None:
            raise played.state.failure
        if played.stop is not None:
            return played.stop
        if not is_over:
            return StopReason.TIME_LIMIT
        if not played.episode_turns:
            ended = door.ended or ProgramEnd(-1, "its connection was closed in the sandbox")
            raise ExtensionFailedError(
                "the harness ended before the policy took a turn",
                why=f"it ended with code {ended.code}: {ended.said[-_SHOWN:]}",
                fix="try its command in the task's image: `swe-rollout sandbox run`",
                retryable=False,
            )
        return StopReason.FINISHED


_EXPORTS: Final = """\
door=http://127.0.0.1:$DOOR_PORT
export OPENAI_BASE_URL=$door/v1 OPENAI_API_BASE=$door/v1 OPENAI_API_KEY=$DOOR_KEY \
  ANTHROPIC_BASE_URL=$door ANTHROPIC_API_KEY=$DOOR_KEY GOOGLE_GEMINI_BASE_URL=$door \
  GEMINI_API_KEY=$DOOR_KEY NO_PROXY=127.0.0.1
unset DOOR_PORT DOOR_KEY door"""


def _require_fit(what: str, text: str) -> None:
    """Refuse what no program can be started with. Raises ExtensionFailedError."""
    size = len(text.encode(errors="replace"))
    if size < _MOST_STRING and "\0" not in text:
        return
    raise ExtensionFailedError(
        f"{what} can't be handed to the harness",
        why="it holds a NUL character"
        if "\0" in text
        else f"it has {size:,} bytes, and Linux starts no program with {_MOST_STRING:,} in one",
        fix="shorten it; what is longer goes into a file of the task's image",
        retryable=False,
    )


async def repeat(played: Conversations, journal: Outside) -> StopReason | None:
    """Answer what earlier lives were asked; return why the program had stopped, if it had.

    Raises DivergedError.
    """
    requests: list[Request] = []
    for at, data in enumerate(journal.asked, start=1):
        try:
            requests.append(decode(data, requests))
            await played.answer(requests[-1])
        except EndedError as error:
            # The last turn was sampled, and reached a limit.
            if at < len(journal.asked) or played.stop is None:
                raise DivergedError(f"the episode ended before turn {at + 1}: {error}") from error
            return journal.stopped or await journal.stop(played.stop)
        except (ValueError, BadRequestError) as error:
            raise DivergedError(f"what the harness asked has no answer: {error}") from error
    return journal.stopped
