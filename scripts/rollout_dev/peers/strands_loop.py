"""A Strands `Agent` for each episode, over our model or over strands-sglang's.

It is set up as in its README for training: no conversation manager, no callbacks, no telemetry. The
tool returns a fixed text and records the time; all else is read from the model after the episode.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.types.exceptions import EventLoopException
from strands_sglang import SGLangClient, SGLangModel

from rollout_dev.peers.environment import EpisodeDiedError
from swe_rollout.integrations.strands.client import SGLangClient as OurClient
from swe_rollout.integrations.strands.model import SglangModel
from swe_rollout.integrations.strands.renderers import TransformersTokenizer

_SAMPLING: Mapping[str, object] = {"max_new_tokens": 4096, "temperature": 1.0}


class _Rollout(Protocol):
    token_ids: Sequence[int]
    loss_mask: Sequence[int]
    segment_info: Sequence[tuple[bool, int]]


class _Model(Protocol):
    rollout: _Rollout


class _Client(Protocol):
    def close(self) -> Awaitable[None]: ...


class _Agent(Protocol):
    def invoke_async(self, prompt: str) -> Awaitable[object]: ...


@dataclass(slots=True)
class PlayedEpisode:
    """The outcome of an episode."""

    called_at: list[tuple[float, float]] = field(default_factory=list)
    """When the tool was called, in seconds of the clock and of this process's CPU time."""
    died: str = ""
    """Why the episode ended early."""
    turns: list[tuple[int, ...]] = field(default_factory=list)
    """The ids of each turn that the model holds."""
    trained: int = 0
    """Number of ids whose mask is 1."""


@dataclass(frozen=True, slots=True)
class StrandsScene:
    """The tokenizer, server and texts of an episode."""

    tokenizer: TransformersTokenizer
    url: str
    system: str
    task: str
    result: str


class StrandsLoop:
    """Plays episodes over strands-sglang's model, all on one client."""

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
            client=self._client, tokenizer=self._tokenizer, sampling_params=dict(_SAMPLING)
        )
        rollout = cast("_Rollout", model.rollout)
        agent = _agent(model, self._system, self._result, PlayedEpisode())
        try:
            await agent.invoke_async(task)
        except EventLoopException as error:
            why = str(error).partition("\n")[0]
            raise EpisodeDiedError(_generations(rollout), why) from error
        return _generations(rollout)


async def play_ours(scene: StrandsScene) -> PlayedEpisode:
    """Play an episode over our model."""
    client = OurClient(scene.url)
    model = SglangModel(client=client, tokenizer=scene.tokenizer, sampling_params=_SAMPLING)
    return await _play(scene, cast("_Model", model), client)


async def play_theirs(scene: StrandsScene) -> PlayedEpisode:
    """Play an episode over strands-sglang's model."""
    client = SGLangClient(scene.url)
    model = SGLangModel(client=client, tokenizer=scene.tokenizer, sampling_params=dict(_SAMPLING))
    return await _play(scene, cast("_Model", model), cast("_Client", client))


async def _play(scene: StrandsScene, model: _Model, client: _Client) -> PlayedEpisode:
    played = PlayedEpisode()
    try:
        await _agent(model, scene.system, scene.result, played).invoke_async(scene.task)
    except Exception as error:  # noqa: BLE001 - whatever it is, the episode ends with it
        played.died = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    finally:
        await client.close()
    ids, at = list(model.rollout.token_ids), 0
    for is_output, length in model.rollout.segment_info:
        if is_output:
            played.turns.append(tuple(ids[at : at + length]))
        at += length
    played.trained = sum(model.rollout.loss_mask)
    return played


def _agent(model: object, system: str, result: str, played: PlayedEpisode) -> _Agent:
    async def bash(command: str) -> str:
        """Run a command.

        Args:
            command: What to run.
        """
        del command
        played.called_at.append((time.perf_counter(), time.process_time()))
        return result

    made = Agent(
        model=model,
        tools=[tool(name="bash", description="Run a command.")(bash)],
        system_prompt=system,
        conversation_manager=NullConversationManager(),
        callback_handler=None,
    )
    return cast("_Agent", made)


def _generations(rollout: _Rollout) -> int:
    return sum(is_output for is_output, _ in rollout.segment_info)
