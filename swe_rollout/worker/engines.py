"""Open the engine that a job names, and load the renderer of its model.

`ENGINES` is the extension point: a built-in engine is a factory that takes an `EngineSetup`; a
user's engine is a `TokenEngine`, which `open_engine` opens in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from swe_rollout.agent.renderer import Renderer
from swe_rollout.engine.base import CacheGate, EngineInfo, OpenGate, TokenEngine
from swe_rollout.engine.chat.base import ChatEngine
from swe_rollout.engine.chat.function import chat_engine
from swe_rollout.engine.chat.http import http_engine
from swe_rollout.engine.checked import Vocabulary, checked_chat_engine, checked_engine, checked_info
from swe_rollout.engine.pool.pool import CacheShare, EnginePool
from swe_rollout.engine.scripted.engine import ScriptedEngine
from swe_rollout.engine.transformers.engine import TransformersEngine
from swe_rollout.engine.transformers.model import LocalModel
from swe_rollout.errors import EngineError, InternalError, boundary
from swe_rollout.extension import ExtensionPoint
from swe_rollout.spec.agent import AgentSpec
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.model import Use
from swe_rollout.spec.policy import (
    AnthropicPolicy,
    OpenaiPolicy,
    Policy,
    ScriptedPolicy,
    SglangPolicy,
    TransformersPolicy,
)
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.worker.harnesses import shell_of


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """The job's settings for its engine, and its tasks."""

    policy: Policy
    agent: AgentSpec
    instances: Sequence[Instance]
    stack: AsyncExitStack
    """Closes whatever the factory opens."""
    engine: TokenEngine | None = None
    """An engine opened by the caller, which replaces the one that the policy names."""
    max_new_tokens: int = Limits().max_new_tokens
    """The job's limit for one generation."""
    cache: CacheShare = field(default_factory=CacheShare)
    """What of the engine's cache this process may fill."""

    def renderer(self, tokenizer: str) -> Renderer:
        """Load the renderer for the job's tokenizer, or for `tokenizer` if the job names none."""
        wanted = self.agent.tool_format
        return Renderer.load(
            self.policy.tokenizer or tokenizer,
            tool_format=None if wanted == "auto" else wanted,
            chat_template_kwargs=self.policy.chat_template_kwargs,
            template_day=self.policy.template_date,
        )


@dataclass(frozen=True, slots=True)
class OpenEngine:
    """An engine that responds, and the renderer for its model."""

    engine: TokenEngine | ChatEngine
    renderer: Renderer | None
    """None for a chat engine, whose episodes have no tokens."""
    info: EngineInfo
    policy_of: Callable[[EpisodeId], str]
    """The policy's name in the record of an episode."""
    gate: CacheGate = field(default_factory=OpenGate)
    """Lets episodes start."""


EngineFactory: TypeAlias = "Callable[..., Awaitable[OpenEngine]]"

ENGINES: ExtensionPoint[TokenEngine | EngineFactory] = ExtensionPoint(
    "engine",
    group="swe_rollout.engines",
    accepts=lambda value: isinstance(value, TokenEngine) or callable(value),
    expected="a TokenEngine: a class with info, generate, release and aclose",
    builtin={
        "sglang": "swe_rollout.worker.engines:open_sglang",
        "scripted": "swe_rollout.worker.engines:open_scripted",
        "transformers": "swe_rollout.worker.engines:open_transformers",
    },
)


async def open_engine(setup: EngineSetup) -> OpenEngine:
    """Open the engine that the policy names.

    Raises UnreachableError if it does not respond, ExtensionError if it can't be created, and the
    errors of `Renderer.load`.
    """
    opened = await _open(setup)
    if isinstance(opened.engine, ChatEngine):
        return replace(opened, engine=checked_chat_engine(opened.engine))
    if (renderer := opened.renderer) is None:
        return opened
    vocabulary = Vocabulary(opened.info.vocab_size or renderer.vocab_size, renderer.special_ids)
    return replace(opened, engine=checked_engine(opened.engine, vocabulary))


async def _open(setup: EngineSetup) -> OpenEngine:
    if setup.engine is not None:
        return await _wrap(setup, setup.engine, "engine")
    policy = setup.policy
    parameters: dict[str, object]
    match policy:
        case Policy(sglang=SglangPolicy() as options):
            use, parameters = "sglang", {"options": options}
        case Policy(scripted=ScriptedPolicy() as options):
            use, parameters = "scripted", {"options": options}
        case Policy(transformers=TransformersPolicy() as options):
            use, parameters = "transformers", {"options": options}
        case Policy(openai=OpenaiPolicy() as options):
            return await _open_chat(setup, http_engine(options), f"openai:{options.model}")
        case Policy(anthropic=AnthropicPolicy() as options):
            return await _open_chat(setup, http_engine(options), f"anthropic:{options.model}")
        case Policy(chat=Use() as own):
            return await _open_chat(setup, chat_engine(own.use, own.with_), f"chat:{own.use}")
        case Policy(engine=Use() as own):
            use, parameters = own.use, own.with_
        case _:
            raise InternalError("the spec's rule of one policy was not checked")
    found = ENGINES.load(use, parameters)
    if not isinstance(found, TokenEngine):
        return await found(setup)
    setup.stack.push_async_callback(found.aclose)
    return await _wrap(setup, found, use)


async def _wrap(setup: EngineSetup, engine: TokenEngine, name: str) -> OpenEngine:
    async with boundary(EngineError, f"the engine {name}"):
        info = checked_info(await engine.info())
    renderer = setup.renderer(info.tokenizer or info.model)
    return OpenEngine(engine, renderer, info, lambda _: f"{name}:{info.model}")


async def open_sglang(setup: EngineSetup, *, options: SglangPolicy) -> OpenEngine:
    """Open a pool of SGLang servers."""
    # The engine names its model before ids can be checked against that model's vocabulary.
    scout = EnginePool(options, vocab_size=1)
    try:
        info = await scout.info()
    finally:
        await scout.aclose()
    renderer = setup.renderer(info.tokenizer or info.model)
    tokens = min(filter(None, (info.context_tokens, setup.cache.context_tokens)), default=None)
    engine = EnginePool(
        options,
        vocab_size=info.vocab_size or renderer.vocab_size,
        share=replace(setup.cache, context_tokens=tokens),
    )
    setup.stack.push_async_callback(engine.aclose)
    await engine.info()  # the size of the cache, before the first episode enters
    return OpenEngine(engine, renderer, info, lambda _: f"sglang:{info.model}", gate=engine)


async def open_scripted(setup: EngineSetup, *, options: ScriptedPolicy) -> OpenEngine:
    """Open the engine that plays named scenarios."""
    tokenizer = setup.policy.tokenizer or str(tokenizer_path())
    renderer = setup.renderer(tokenizer)
    engine = ScriptedEngine(
        options,
        setup.instances,
        tokenizer,
        tool_format=renderer.tool_format,
        shell=shell_of(setup.agent),
    )
    engine.require_playable(setup.max_new_tokens)
    return OpenEngine(
        engine,
        renderer,
        await engine.info(),
        lambda episode: f"scripted:{engine.scenario_of(episode).name}",
    )


async def open_transformers(setup: EngineSetup, *, options: TransformersPolicy) -> OpenEngine:
    """Load a model into this process."""
    # Do the quick part first: don't load a model without a usable chat template.
    renderer = setup.renderer(options.model)
    model = await asyncio.to_thread(LocalModel.load, options)
    engine = TransformersEngine(
        model,
        cache_tokens=options.cache_tokens,
        context_tokens=options.context_tokens,
        tokenizer=options.model,
    )
    setup.stack.push_async_callback(engine.aclose)
    return OpenEngine(
        engine, renderer, await engine.info(), lambda _: f"transformers:{options.model}"
    )


async def _open_chat(setup: EngineSetup, engine: ChatEngine, name: str) -> OpenEngine:
    setup.stack.push_async_callback(engine.aclose)
    async with boundary(EngineError, f"the engine {name}"):
        return OpenEngine(engine, None, await engine.info(), lambda _: name)
