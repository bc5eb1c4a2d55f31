"""strands-sglang's whole loop: an `Agent` for each episode, all on one client.

Set up as in its README for training: no conversation manager, no callbacks, no telemetry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol, cast

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.types.exceptions import EventLoopException
from strands_sglang import SGLangClient, SGLangModel

from rollout_dev.peers.loop_error import EpisodeDiedError


class _Rollout(Protocol):
    segment_info: Sequence[tuple[bool, int]]


class _Agent(Protocol):
    def invoke_async(self, prompt: str) -> Awaitable[object]: ...


class StrandsLoop:
    """Plays episodes whose tool returns a fixed text."""

    def __init__(self, tokenizer: object, url: str, *, system: str, result: str) -> None:
        self._tokenizer = tokenizer
        self._url = url
        self._system = system
        self._result = result
        self._client: SGLangClient | None = None

    async def open(self) -> None:
        """Open the client that all episodes share."""
        self._client = SGLangClient(self._url)

    async def aclose(self) -> None:
        """Close the client."""
        if self._client is not None:
            await self._client.close()

    async def play(self, task: str) -> int:
        """Play one episode and return its number of generations. Raises EpisodeDiedError."""
        model = SGLangModel(
            client=self._client,
            tokenizer=self._tokenizer,
            sampling_params={"max_new_tokens": 4096, "temperature": 1.0},
        )
        agent = cast(
            "_Agent",
            Agent(
                model=model,
                tools=[self._bash()],
                system_prompt=self._system,
                conversation_manager=NullConversationManager(),
                callback_handler=None,
            ),
        )
        rollout = cast("_Rollout", model.rollout)
        try:
            await agent.invoke_async(task)
        except EventLoopException as error:
            why = str(error).partition("\n")[0]
            raise EpisodeDiedError(_generations(rollout), why) from error
        return _generations(rollout)

    def _bash(self) -> object:
        result = self._result

        async def bash(command: str) -> str:
            """Run a command.

            Args:
                command: What to run.
            """
            del command
            return result

        made: object = tool(name="bash", description="Run a command.")(bash)
        return made


def _generations(rollout: _Rollout) -> int:
    return sum(is_output for is_output, _ in rollout.segment_info)
