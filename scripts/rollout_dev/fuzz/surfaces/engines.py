"""Answers of engines: SGLang and its router, and chat APIs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence

import msgspec

from rollout_dev.fuzz.surface import Shape, Surface, promise, split_head, with_head
from rollout_dev.fuzz.surfaces import real
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.chat import anthropic, openai
from swe_rollout.engine.chat.errors import error_from_response as chat_error
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


def _sglang_samples() -> Sequence[bytes]:
    entry = [-0.5, 7, None]
    meta: dict[str, object] = {
        "id": "x",
        "finish_reason": {"type": "stop", "matched": 7},
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "cached_tokens": 1,
        "weight_version": "v1",
        "output_token_logprobs": [[-0.25, 5, None], entry],
    }
    spans = [{"version": "a", "start": 0, "end": 1}, {"version": "b", "start": 1, "end": 2}]
    replay = {
        "routed_experts": "AAAA",
        "input_token_logprobs": [[None, 1, None], [-1.0, 2, None], [-2.0, 3, None]],
        "output_token_sampling_mask": [[5, 6], [7]],
        "output_token_sampling_logprobs": [-0.2, -0.1],
    }
    aborted = {"type": "abort", "message": "gone", "status_code": 503}
    made = [
        ("generate 200", {"text": "", "output_ids": [5, 7], "meta_info": meta}),
        ("generate 200", {"meta_info": meta | {"weight_versions": spans}}),
        ("generate 200", {"meta_info": meta | {"finish_reason": aborted}}),
        ("generate 200", {"meta_info": meta | {"finish_reason": {"type": "length", "length": 2}}}),
        ("replay 200", {"meta_info": meta | replay}),
        ("generate 400", {"error": {"message": "longer than the context length", "code": 400}}),
        ("generate 503", {"detail": "Model is not ready", "error": "x"}),
        ("generate 503", [{"loc": ["body"], "msg": "field required"}]),
    ]
    stream = b'data: {"error": {"message": "x", "code": 400}}\n\ndata: [DONE]\n\n'
    return [
        *(with_head(head, json.dumps(body).encode()) for head, body in made),
        with_head("generate 200", stream),
        *_recorded(),
    ]


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
    found = decode_response(body, request, vocab_size=_VOCAB)
    promise(len(found.token_ids) == len(found.logprobs) <= request.max_new_tokens, "too many ids")
    promise(all(0 <= each < _VOCAB for each in found.token_ids), "an id that is none")
    promise(all(map(math.isfinite, found.logprobs)), "a logprob that is no number")
    covered = sum(span.end - span.start for span in found.weight_versions)
    promise(covered in (0, len(found.token_ids)), "versions that do not cover the ids")
    promise(found.cached_tokens >= 0, "a negative number of cached tokens")


SGLANG = Surface(
    "sglang-answers",
    "answers of an SGLang server or router to /generate, and its errors",
    _sglang_samples,
    _decode,
    (EngineError,),
    Shape.JSON,
    ("abort", "length", "stop", "meta_info", "data: ", "[DONE]", "weight_versions", "AAAA" * 50),
    has_head=True,
)


def _chat_samples() -> Sequence[bytes]:
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"a": 1}'}}
    ours = {
        "model": "m",
        "choices": [
            {
                "message": {"role": "assistant", "content": "hi", "tool_calls": [call]},
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 1},
        },
    }
    theirs = {
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 2, "cache_read_input_tokens": 1},
    }
    error = {"error": {"message": "context_length_exceeded", "type": "x", "code": "y"}}
    return [
        with_head("openai", json.dumps(ours).encode()),
        with_head("anthropic", json.dumps(theirs).encode()),
        with_head("error 400", json.dumps(error).encode()),
        with_head("error 429", json.dumps({"type": "error", **error}).encode()),
        with_head("error 500", b"<html>bad gateway</html>"),
    ]


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


CHAT = Surface(
    "chat-answers",
    "answers of chat APIs, and their errors",
    _chat_samples,
    _decode_chat,
    (EngineError,),
    Shape.JSON,
    ("tool_calls", "tool_use", "end_turn", "max_tokens", "refusal", "reasoning_content", '{"a":'),
    has_head=True,
)
