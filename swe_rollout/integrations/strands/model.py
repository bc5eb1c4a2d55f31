"""SglangModel: the model of a Strands `Agent` with exact tokens.

The agent's messages only tell what is new; the tokens are kept in a log. The first prompt is
rendered once, then only what follows a turn, and what was sampled is kept id for id. One model
holds the tokens of one episode.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, Unpack, cast
from weakref import WeakSet

from pydantic import BaseModel
from strands.models import Model
from strands.types.exceptions import ContextWindowOverflowException, ModelThrottledException

from swe_rollout.agent.renderer import Renderer
from swe_rollout.engine.base import TokenEngine
from swe_rollout.errors import EngineError, UnreachableError, UsageError
from swe_rollout.integrations.strands.client import SGLangClient
from swe_rollout.integrations.strands.config import (
    SglangConfig,
    check_config,
    constrained,
    read_object,
    read_sampling,
    recording_of,
)
from swe_rollout.integrations.strands.conversation import (
    Conversation,
    SaidTurn,
    TurnInput,
    events_of,
)
from swe_rollout.integrations.strands.exceptions import (
    SGLangClientError,
    SGLangContextLengthError,
    SGLangThrottledError,
    client_error,
)
from swe_rollout.integrations.strands.hooks import LoopHooks
from swe_rollout.integrations.strands.messages import (
    LastTurn,
    StrandsMessage,
    first_messages,
    new_messages,
)
from swe_rollout.integrations.strands.renderers import (
    PretrainedTokenizer,
    TransformersTokenizer,
    renderer_of,
)
from swe_rollout.integrations.strands.rollout import Rollout
from swe_rollout.integrations.strands.tool_parsers import ToolParser, get_tool_parser
from swe_rollout.integrations.strands.tools import StrandsTool, read_tools
from swe_rollout.launcher.sync import ends_first
from swe_rollout.tokens.log import TokenLog
from swe_rollout.types.turn import CallStatus

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from strands import Agent


_Output = TypeVar("_Output", bound=BaseModel)
_T = TypeVar("_T")


class SglangModel(Model):
    """Samples the turns of a Strands agent and keeps their tokens."""

    def __init__(
        self,
        *,
        tokenizer: TransformersTokenizer | Renderer | str,
        client: SGLangClient | None = None,
        engine: TokenEngine | None = None,
        tool_parser: ToolParser | str | None = None,
        **config: Unpack[SglangConfig],
    ) -> None:
        """`tokenizer` is one of transformers, a folder, a hub name or a `Renderer`. `client` is an
        SGLang server; any `TokenEngine` may take its place. `tool_parser` is the format of calls,
        by name or parser; None means the chat template's own.

        Raises UsageError for a configuration that would not be honoured, PrerequisiteError for a
        chat template that can't be kept exact.
        """
        if (client is None) == (engine is None):
            raise UsageError("a model needs a client or an engine, and not both")
        self.client = client
        self.config: dict[str, object] = {}
        self._engine = engine
        self._tokenizer = tokenizer
        parser = get_tool_parser(tool_parser) if isinstance(tool_parser, str) else tool_parser
        self._tool_format = None if parser is None else parser.tool_format
        self.tool_parse_errors: dict[str, int] = {}
        """Number of unreadable calls, by the name that they gave."""
        self._conversation: Conversation | None = None
        self._last: LastTurn | None = None
        self._problems: dict[str, str] = {}
        self._tools: tuple[Sequence[Mapping[str, object]], tuple[StrandsTool, ...]] = ((), ())
        self._hooked: WeakSet[Agent] = WeakSet()
        self.update_config(**config)

    @property
    def renderer(self) -> Renderer:
        """The renderer of the model; it is cached across episodes."""
        thinking = cast("bool | None", self.config.get("enable_thinking"))
        return renderer_of(self._tokenizer, tool_format=self._tool_format, enable_thinking=thinking)

    @property
    def tokenizer(self) -> PretrainedTokenizer:
        """The transformers tokenizer."""
        return cast("PretrainedTokenizer", self.renderer.tokenizer)

    @property
    def rollout(self) -> Rollout:
        """The tokens of the episode so far."""
        return Rollout(self._conversation.log if self._conversation else TokenLog())

    token_manager = rollout

    @property
    def token_ids(self) -> list[int]:
        """All ids of the episode, as they were sent and sampled."""
        return self.rollout.token_ids

    @property
    def loss_mask(self) -> list[int]:
        """1 for each id that the policy sampled."""
        return self.rollout.loss_mask

    @property
    def logprobs(self) -> list[float]:
        """The logprob of each id in nats; 0.0 where the policy did not sample."""
        return self.rollout.logprobs

    @property
    def segments(self) -> list[list[int]]:
        """The ids in runs: the first prompt, a turn, what followed it, a turn, …."""
        return self.rollout.segments

    @property
    def routed_experts(self) -> NDArray[np.int32] | None:
        """Experts of all ids but the last, as int32 `[tokens - 1, layers, topk]`, or None."""
        return self.rollout.routed_experts

    def reset(self) -> None:
        """Start another episode; nothing of this one is kept."""
        if self._conversation is not None:
            self._conversation.release()
        self._conversation, self._last = None, None
        self._problems.clear()
        self.tool_parse_errors = {}

    def update_config(self, **model_config: Unpack[SglangConfig]) -> None:
        """Change the configuration; changes to the prompt or record apply from the next episode.

        Raises UsageError for an option that would not be honoured.
        """
        check_config(model_config, self.renderer)
        self.config.update(model_config)

    def get_config(self) -> SglangConfig:
        """Return the configuration."""
        return cast("SglangConfig", self.config)

    async def stream(
        self,
        messages: Sequence[StrandsMessage],
        tool_specs: Sequence[Mapping[str, object]] | None = None,
        system_prompt: str | None = None,
        *,
        invocation_state: dict[str, object] | None = None,
        cancel_signal: threading.Event | None = None,
        **kwargs: object,
    ) -> AsyncIterator[dict[str, object]]:
        """Sample one turn and yield the events of its message, all at once.

        Raises ContextWindowOverflowException if nothing more fits, ModelThrottledException if the
        engine is full, an SGLangClientError if it fails, and HistoryError if the messages don't
        continue what was sampled. A tool can't be forced: `tool_choice` is not read.
        """
        del kwargs
        if invocation_state is not None:
            self._hook_into(invocation_state)
        given = self._given(messages, tool_specs or (), system_prompt or "")
        conversation = await self._of_episode()
        with StrandsErrors():
            turn = await unless(cancel_signal, conversation.say(given))
        if turn is None:
            return
        self._note(turn, len(messages))
        for event in events_of(turn):
            yield event

    async def structured_output(
        self,
        output_model: type[_Output],
        prompt: Sequence[StrandsMessage],
        system_prompt: str | None = None,
        **kwargs: object,
    ) -> AsyncIterator[dict[str, _Output]]:
        """Request an object of a pydantic model; its JSON schema constrains the decoding.

        Its tokens are not kept: constrained logprobs are not the policy's. It may continue the
        episode's conversation, as a judge's question does, and leaves it as it was.
        """
        del kwargs
        if self.client is None:
            raise UsageError("structured output needs a client", why="engines don't constrain")
        given = self._given(prompt, (), system_prompt or "")
        conversation = await self._of_episode()
        params = constrained(given.sampling, output_model)
        ids = await conversation.prompt_of(given)
        with StrandsErrors():
            response = await self.client.generate(ids, sampling_params=params)
        yield {"output": read_object(response, output_model)}

    def _given(
        self,
        messages: Sequence[StrandsMessage],
        tool_specs: Sequence[Mapping[str, object]],
        system: str,
    ) -> TurnInput:
        config = self.get_config()
        last = self._last
        return TurnInput(
            first_messages(messages) if last is None else new_messages(messages, last),
            system,
            self._read_tools(tool_specs),
            read_sampling(config.get("sampling_params") or {}, self.renderer),
            config.get("context_window_limit"),
        )

    def _read_tools(self, specs: Sequence[Mapping[str, object]]) -> tuple[StrandsTool, ...]:
        known, _ = self._tools
        if known != specs:
            self._tools = (specs, read_tools(specs, self.renderer.controls.values()))
        return self._tools[1]

    async def _of_episode(self) -> Conversation:
        engine = self._engine
        if engine is None:
            assert self.client is not None  # noqa: S101 - see __init__
            engine = await self.client.engine(self.renderer.vocab_size)
        if self._conversation is None:
            recording = recording_of(self.get_config())
            self._conversation = Conversation(engine, self.renderer, recording)
        self._conversation.use(engine)
        return self._conversation

    def _note(self, turn: SaidTurn, index: int) -> None:
        """Record what the agent is about to receive of a turn."""
        self._last = LastTurn(turn.use_ids, turn.text, index)
        self._problems.clear()
        for use, call in zip(turn.use_ids, turn.calls, strict=True):
            if call.status is not CallStatus.OK:
                name = call.name or "unknown_tool"
                self.tool_parse_errors[name] = self.tool_parse_errors.get(name, 0) + 1
                self._problems[use] = call.problem

    def _hook_into(self, invocation_state: dict[str, object]) -> None:
        agent = cast("Agent | None", invocation_state.get("agent"))
        if agent is not None and agent not in self._hooked:
            agent.hooks.add_hook(LoopHooks(self._problems))
            self._hooked.add(agent)


class StrandsErrors:
    """Converts an engine's errors to those that Strands and its users know."""

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        match error:
            case EngineError() | UnreachableError():
                found = client_error(error)
                found.__cause__ = error
            case SGLangClientError():
                found = error
            case _:
                return
        match found:
            case SGLangContextLengthError():
                raise ContextWindowOverflowException(str(found)) from found
            case SGLangThrottledError():
                raise ModelThrottledException(str(found)) from found
            case _ if found is not error:
                raise found


async def unless(signal: threading.Event | None, call: Coroutine[object, object, _T]) -> _T | None:
    """Return the result of a call, or None once the signal is set; the call is then cancelled."""
    if signal is None:
        return await call
    task = asyncio.ensure_future(call)
    try:
        return task.result() if await ends_first(task, signal.is_set) else None
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


SGLangModel = SglangModel
"""The name of SglangModel in strands-sglang."""
