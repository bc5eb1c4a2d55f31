"""Check what an engine returns before it is recorded: a user's, a trainer's, or a built-in one.

An answer that can't be trained on, or that does not belong to its request, is an error and never
repaired. Used by `worker.engines`, for all jobs, and by the Strands model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, TypeVar

import msgspec

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.chat.base import (
    AssistantMessage,
    ChatCall,
    ChatEngine,
    ChatRequest,
    ChatResponse,
    ChatUsage,
)
from swe_rollout.engine.chat.errors import checked_calls
from swe_rollout.engine.errors import InvalidAnswerError
from swe_rollout.engine.wrapped import WrappedChatEngine, WrappedEngine
from swe_rollout.errors import InternalError, UnreachableError
from swe_rollout.text.redaction import redact
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan

_T = TypeVar("_T", Generation, ChatResponse)
MAX_TEXT_CHARS: Final = 2**24
"""The longest message of a chat engine, with its reasoning and arguments."""
_HIGHEST_LOGPROB: Final = 1e-4
"""A probability is at most 1, but engines round."""
_LOWEST_LOGPROB: Final = -1e4
"""Nothing this unlikely is ever sampled: engines write such numbers for minus infinity."""
_Int = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Size = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
_PRINTABLE: Final = r"\A[^\x00-\x1f\x7f-\x9f]*\Z"
_PATTERN: Final = re.compile(r"`str` matching regex '.*'")
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1024, pattern=_PRINTABLE)]
_Version = Annotated[str, msgspec.Meta(max_length=256, pattern=_PRINTABLE)]


class _Span(msgspec.Struct, frozen=True):
    version: _Version
    start: _Count
    end: _Count


class _Answer(msgspec.Struct, frozen=True):
    """The types of a `Generation`, which Python does not enforce."""

    token_ids: tuple[_Int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    prompt_tokens: _Int
    cached_tokens: _Count
    weight_versions: tuple[_Span, ...]


class _Call(msgspec.Struct, frozen=True):
    id: str
    name: str
    arguments: str


class _Message(msgspec.Struct, frozen=True):
    text: str
    calls: tuple[_Call, ...]
    reasoning: str
    native: bytes


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: _Count
    completion_tokens: _Count
    cached_tokens: _Count


class _Response(msgspec.Struct, frozen=True):
    """The types of a `ChatResponse`."""

    message: _Message
    finish_reason: FinishReason
    usage: _Usage
    model: Annotated[str, msgspec.Meta(max_length=1024, pattern=_PRINTABLE)]


class _Info(msgspec.Struct, frozen=True):
    """The types of an `EngineInfo`."""

    model: _Name
    context_tokens: _Size | None
    vocab_size: _Size | None
    weight_version: _Version | None
    tokenizer: _Name | None


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The ids of an engine's model."""

    size: int
    """Every id is below it."""
    special: Collection[int]
    """The special tokens, at some of which an engine may stop of its own accord."""


def checked_engine(engine: TokenEngine, vocabulary: Vocabulary) -> TokenEngine:
    """Return an engine whose answers can be recorded; a call with any other fails."""
    return WrappedEngine(engine, _Check(vocabulary))


def checked_chat_engine(engine: ChatEngine) -> ChatEngine:
    """Return a chat engine whose messages can be recorded; a call with any other fails."""
    return WrappedChatEngine(engine, _Check(Vocabulary(0, ())))


def checked_info(info: object) -> EngineInfo:
    """Return what an engine says about itself; raises UnreachableError if it can't be read."""
    try:
        return EngineInfo(**msgspec.structs.asdict(_typed(info, EngineInfo, _Info)))
    except InvalidAnswerError as error:
        raise UnreachableError(
            "the engine does not say which model it serves",
            why=f"info() returned something else: {error.why}",
            fix="return EngineInfo(model, context_tokens=…, vocab_size=…, weight_version=…)",
        ) from error


@dataclass(frozen=True, slots=True)
class _Check:
    vocabulary: Vocabulary

    async def __call__(
        self, request: GenerateRequest | ChatRequest, call: Callable[[], Awaitable[_T]]
    ) -> _T:
        answer = await call()
        if isinstance(answer, ChatResponse):
            return checked_message(answer)
        if isinstance(request, ChatRequest):
            raise InternalError("an engine of tokens was asked for messages")
        return checked(answer, request, self.vocabulary)


def checked(answer: object, request: GenerateRequest, vocabulary: Vocabulary) -> Generation:
    """Return a response to a request; raises InvalidAnswerError if it can't be trained on."""
    found = _typed(answer, Generation, _Answer)
    assert isinstance(answer, Generation)  # noqa: S101 - `_typed` has checked it
    ids = found.token_ids
    if len(ids) > request.max_new_tokens:
        raise InvalidAnswerError(
            f"the engine sampled {len(ids)} tokens, {request.max_new_tokens} were asked for",
            fix="let it stop after request.max_new_tokens",
        )
    _check_ids(ids, vocabulary.size)
    _check_logprobs(found.logprobs, len(ids))
    if found.prompt_tokens != len(request.input_ids):
        raise InvalidAnswerError(
            f"the engine read {found.prompt_tokens} tokens of a prompt of {len(request.input_ids)}",
            fix="let it read request.input_ids whole: without truncation (SGLang: "
            "--allow-auto-truncate) and outside of sessions",
        )
    return replace(
        answer,
        token_ids=ids,
        logprobs=found.logprobs,
        finish_reason=_reason(found.finish_reason, ids, request.stop_token_ids, vocabulary),
        weight_versions=_weight_versions(found.weight_versions, len(ids)),
        replay=answer.replay if request.replay else None,
    )


def checked_message(answer: object) -> ChatResponse:
    """Return a chat engine's message; raises InvalidAnswerError if it can't be recorded."""
    found = _typed(answer, ChatResponse, _Response)
    said, reason = found.message, found.finish_reason
    if reason is FinishReason.ABORT:
        raise InvalidAnswerError(
            "the chat engine ended a message with `abort`",
            fix="raise EngineError for a call that failed",
        )
    calls = checked_calls([ChatCall(each.id, each.name, each.arguments) for each in said.calls])
    size = len(said.text) + len(said.reasoning) + sum(len(call.arguments) for call in calls)
    if size > MAX_TEXT_CHARS:
        raise InvalidAnswerError(
            f"the chat engine returned {size} characters",
            why=f"a message has at most {MAX_TEXT_CHARS}",
        )
    message = AssistantMessage(said.text, calls, said.reasoning, said.native)
    usage = ChatUsage(*msgspec.structs.astuple(found.usage))
    return ChatResponse(message, reason, usage, found.model)


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def _typed(answer: object, wanted: type[object], fields: type[_Struct]) -> _Struct:
    if not isinstance(answer, wanted):
        raise InvalidAnswerError(
            f"the engine returned no {wanted.__name__}",
            why=f"it returned {type(answer).__name__}",
            fix="return what the engine's protocol documents",
        )
    try:
        return msgspec.convert(answer, fields, from_attributes=True)
    except msgspec.ValidationError as error:
        raise InvalidAnswerError(
            f"the engine returned a {wanted.__name__} with a wrong value",
            why=_PATTERN.sub("text without control characters", str(error)).replace("`$.", "`"),
            fix=f"return plain Python values, as {wanted.__name__} documents (arrays: .tolist())",
        ) from error


def _check_ids(ids: Sequence[int], vocab_size: int) -> None:
    if ids and not (min(ids) >= 0 and max(ids) < vocab_size):
        raise InvalidAnswerError(
            f"sampled ids range from {min(ids)} to {max(ids)}, the vocabulary has {vocab_size}",
            fix="check that the tokenizer is the model's own",
        )


def _check_logprobs(logprobs: Sequence[float], count: int) -> None:
    if len(logprobs) != count:
        raise InvalidAnswerError(
            f"the engine returned {count} ids and {len(logprobs)} logprobs",
            fix="let it return the logprob of each sampled id",
        )
    check_logprobs(logprobs, of="a sampled id")
    if count and min(logprobs) < _LOWEST_LOGPROB:
        raise InvalidAnswerError(
            f"a sampled id has the logprob {min(logprobs):g}: it can't have been sampled",
            fix="return the logprob at request.sampling.temperature, before top-k and top-p",
        )


def check_logprobs(logprobs: Sequence[float], *, of: str) -> None:
    """Raise InvalidAnswerError unless these are logarithms of probabilities."""
    if not all(map(math.isfinite, logprobs)):
        raise InvalidAnswerError(
            f"{of} has no finite logprob", fix="look for NaN in the model's logits"
        )
    if logprobs and max(logprobs) > _HIGHEST_LOGPROB:
        raise InvalidAnswerError(
            f"{of} has the logprob {max(logprobs):g}",
            why="that is a probability above 1",
            fix="return natural logarithms of probabilities",
        )


def _reason(
    reason: FinishReason,
    ids: Sequence[int],
    stops: Collection[int],
    vocabulary: Vocabulary,
) -> FinishReason:
    """Return why a call ended. A stop token ends it, and is its last id, whatever it reports."""
    if not set(stops).isdisjoint(ids[:-1]):
        first = next(at for at, each in enumerate(ids, 1) if each in stops)
        raise InvalidAnswerError(
            "the engine sampled on after a stop token",
            why=f"number {first} of {len(ids)} ids is one",
            fix="let it stop at each of request.stop_token_ids",
        )
    if ids and ids[-1] in stops:
        return FinishReason.STOP
    if reason is FinishReason.STOP and not (ids and ids[-1] in vocabulary.special):
        raise InvalidAnswerError(
            "the stop token is not among the sampled ids",
            why=f"a call that ended with `stop` has the last ids {list(ids[-3:])}",
            fix="return all ids as sampled, the stop token too (SGLang: no_stop_trim), and "
            "`length` or `abort` if there was none",
        )
    return reason


def _weight_versions(spans: Sequence[_Span], count: int) -> tuple[WeightSpan, ...]:
    found = [span for span in spans if span.start != span.end]
    starts = [span.start for span in found]
    if found and [*starts, count] != [0, *(span.end for span in found)]:
        raise InvalidAnswerError(
            f"the spans of weight_versions do not cover {count} sampled ids one after the other",
            why=", ".join(f"[{each.start}, {each.end})" for each in spans[:9])[:200],
            fix="let each begin where the one before it ends, from 0 to the number of ids",
        )
    return tuple(WeightSpan(redact(span.version), span.start, span.end) for span in found)
