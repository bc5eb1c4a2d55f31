r"""An agent that is a program: it runs in the sandbox, unchanged, and speaks a chat API.

    agent: {use: harness, with: {command: "mini -t \"$TASK\" -y"}}

The API is at an address of the sandbox's loopback, which its variables name. The episode ends with
the program, or with a limit, whatever the program does then.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Final

from aiohttp import web
from pydantic import Field, StringConstraints

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.prompts import MessageRole
from swe_rollout.errors import ExtensionFailedError
from swe_rollout.gateway.conversations import Conversations
from swe_rollout.gateway.door import Door, opened
from swe_rollout.gateway.server import MAX_BODY_BYTES, Api
from swe_rollout.spec.model import Model
from swe_rollout.types.episode import StopReason

_OUTPUT_BYTES: Final = 1 << 16
_SHOWN: Final = 1000


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

    async def __call__(self, context: AgentContext) -> StopReason:
        """Run the program until it ends, or the episode does."""
        played = Conversations.of_agent(context)
        key = secrets.token_urlsafe(24)
        clock = context.clock
        clock.reset(context.parts.limits.episode_seconds)
        timeout_s = clock.remaining_s
        session = OneSession(key, played)
        async with (
            _serving(Api(OneEpisode(session))) as port,
            opened(Door(context.sandbox, port, timeout_s=timeout_s)) as inside,
        ):
            try:
                return await self._run(context, played, _variables(inside, key), timeout_s)
            finally:
                await played.close()

    async def _run(
        self, context: AgentContext, played: Conversations, env: dict[str, str], timeout_s: float
    ) -> StopReason:
        task = "\n\n".join(m.content for m in context.task if m.role is MessageRole.USER)
        running = asyncio.create_task(
            context.sandbox.exec(
                self.command,
                env=self.env | env | {"TASK": task},
                timeout_s=timeout_s,
                max_output=_OUTPUT_BYTES,
            )
        )
        over = asyncio.create_task(played.over.wait())
        try:
            # A harness may ask for ever, or end as if all was well, when nothing is answered.
            await asyncio.wait([running, over], return_when=asyncio.FIRST_COMPLETED)
            if played.state.failure is not None:
                raise played.state.failure
            if played.stop is not None:
                return played.stop
            ended = await running
        finally:
            running.cancel()
            over.cancel()
            await asyncio.gather(running, over, return_exceptions=True)
        if ended.timed_out:
            return StopReason.TIME_LIMIT
        if not played.episode_turns:
            said = (ended.stderr or ended.stdout).decode(errors="replace").strip()
            raise ExtensionFailedError(
                "the harness ended before the policy took a turn",
                why=f"it ended with code {ended.exit_code}: {said[-_SHOWN:]}",
                fix="try its command in the task's image: `swe-rollout sandbox run`",
                retryable=False,
            )
        return StopReason.FINISHED


def _variables(port: int, key: str) -> dict[str, str]:
    base = f"http://127.0.0.1:{port}"
    return {
        "OPENAI_BASE_URL": f"{base}/v1",
        "OPENAI_API_BASE": f"{base}/v1",
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": base,
        "ANTHROPIC_API_KEY": key,
        "GOOGLE_GEMINI_BASE_URL": base,
        "GEMINI_API_KEY": key,
        "NO_PROXY": "127.0.0.1",
    }


@asynccontextmanager
async def _serving(api: Api) -> AsyncIterator[int]:
    """Serve an API on a port of this machine's loopback while the block runs."""
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.add_routes(api.routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
