"""A policy for agents under test: it says given texts, as an engine in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from swe_rollout.agent.renderer import Renderer
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan


@cache
def renderer() -> Renderer:
    """Return the renderer of the package's own tokenizer, a Qwen-like one."""
    return Renderer.load(str(tokenizer_path()))


def call(name: str, arguments: Mapping[str, object] | None = None) -> str:
    """Write a call in the tokenizer's format."""
    body = json.dumps({"name": name, "arguments": dict(arguments or {})})
    return f"<tool_call>\n{body}\n</tool_call>"


@dataclass(frozen=True)
class Part:
    """A response that does not end by itself."""

    text: str
    finish: FinishReason


class SayingEngine(TokenEngine):
    """Says one text after the other; an exception is raised in its place, or the call cancelled."""

    def __init__(self, says: Iterable[str | Part | BaseException]) -> None:
        self.requests: list[GenerateRequest] = []
        self.released: list[EpisodeId] = []
        self._says = iter(says)

    async def info(self) -> EngineInfo:
        return EngineInfo("saying", None, None, "v1")

    async def generate(self, request: GenerateRequest) -> Generation:
        self.requests.append(request)
        said = next(self._says)
        if isinstance(said, asyncio.CancelledError):
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        if isinstance(said, BaseException):
            raise said
        part = said if isinstance(said, Part) else Part(said, FinishReason.STOP)
        ids = renderer().tokenizer.backend_tokenizer.encode(part.text, add_special_tokens=False).ids
        if part.finish is FinishReason.STOP:
            ids = [*ids, renderer().grammar.end_id]
        return Generation(
            token_ids=tuple(ids),
            logprobs=tuple(-0.5 - index / 1000 for index in range(len(ids))),
            finish_reason=part.finish,
            prompt_tokens=len(request.input_ids),
            cached_tokens=max(0, len(request.input_ids) - 7),
            weight_versions=(WeightSpan("v1", 0, len(ids)),) if ids else (),
        )

    def release(self, episode: EpisodeId) -> None:
        self.released.append(episode)

    async def aclose(self) -> None:
        return

    def prompt(self, index: int) -> str:
        """Return the text that a request sent."""
        return renderer().decode(self.requests[index].input_ids.tolist())
