"""Responses of engines: SGLang and its router, and chat APIs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import msgspec

from rollout_dev.fuzz.surface import promise, split_head, surface, with_head
from rollout_dev.fuzz.surfaces import real
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.chat import anthropic, openai
from swe_rollout.engine.chat.errors import error_from_response as chat_error
from swe_rollout.engine.checked import Vocabulary, checked
from swe_rollout.engine.sglang import protocol
from swe_rollout.engine.sglang.responses import decode_response
from swe_rollout.errors import EngineError
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.log import InputIds
from swe_rollout.tokens.replay import ExpertShape, ReplayRequest
from swe_rollout.types.episode import EpisodeId

_VOCAB = 8064
_REPLAY = ReplayRequest(ExpertShape(1, 1), 0, sampling_mask=True, prompt_logprobs_from=1)


def _recorded() -> Iterator[bytes]:
    for data in real.files(real.SGLANG, "*.json", most=400):
        sample = json.loads(data)
        if not isinstance(sample, dict) or not isinstance(sample.get("request"), dict):
            continue
        response, status = sample.get("response"), sample.get("status")
        body = response if isinstance(response, str) else json.dumps(response)
        yield with_head(f"generate {status}", body.encode())


def _request(*, replay: bool) -> GenerateRequest:
    return GenerateRequest(
        episode=EpisodeId("job", "task", 0),
        turn=0,
        input_ids=InputIds.of([1, 2, 3]),
        max_new_tokens=50,
        sampling=Sampling(),
        stop_token_ids=(7,),
        replay=_REPLAY if replay else None,
    )


def _decode(data: bytes) -> None:
    head, body = split_head(data)
    kind, _, status = head.partition(" ")
    code = int(status) if status.isascii() and status.isdigit() else 200
    if code != 200:  # noqa: PLR2004 - HTTP
        error = protocol.error_from_response(code % 600, body, retry_after="7")
        promise(len(str(error)) < 5000, "an error as long as what it is about")  # noqa: PLR2004
        return
    request = _request(replay=kind == "replay")
    answer = decode_response(body, request, vocab_size=_VOCAB)
    found = checked(answer, request, Vocabulary(_VOCAB, ()))
    promise(len(found.token_ids) == len(found.logprobs) <= request.max_new_tokens, "too many ids")
    promise(all(0 <= each < _VOCAB for each in found.token_ids), "an id that is none")
    promise(all(map(math.isfinite, found.logprobs)), "a logprob that is no number")
    covered = sum(span.end - span.start for span in found.weight_versions)
    promise(covered in (0, len(found.token_ids)), "versions that do not cover the ids")
    promise(found.cached_tokens >= 0, "a negative number of cached tokens")


SGLANG = surface("sglang-answers", _decode, EngineError, samples=_recorded)


def _decode_chat(data: bytes) -> None:
    head, body = split_head(data)
    match head.split():
        case ["openai"]:
            found = openai.decode_response(body)
        case ["anthropic"]:
            found = anthropic.decode_response(body)
        case ["error", code] if code.isascii() and code.isdigit():
            error = chat_error(int(code) % 600, body, retry_after="3")
            promise(len(str(error)) < 5000, "an error as long as what it is about")  # noqa: PLR2004
            return
        case _:
            return
    ids = [call.id for call in found.message.calls]
    promise(len(set(ids)) == len(ids), "two calls with one id")
    msgspec.json.encode(msgspec.to_builtins(found.message.text).encode("utf-8", "replace").decode())


CHAT = surface("chat-answers", _decode_chat, EngineError)
