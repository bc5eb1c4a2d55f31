"""Requests to SGLang and the decoding of its responses, on bytes of the recorded shapes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import msgspec
import pytest

from swe_rollout.engine.checked import Vocabulary, checked
from swe_rollout.engine.errors import (
    MAX_BODY_BYTES,
    BadRequestError,
    ContextOverflowError,
    EngineLostError,
    InvalidAnswerError,
    UnauthorizedError,
    UnavailableError,
)
from swe_rollout.engine.sglang import protocol, responses
from swe_rollout.engine.sglang.responses import decode_response
from swe_rollout.errors import EngineError
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.replay import ReplayRequest
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan
from unit.engine.engine_parts import request

REQUEST = request(
    sample=3,
    turn=1,
    max_new_tokens=7,
    sampling=Sampling(temperature=0.7, top_p=0.9, top_k=50, min_p=0.05, seed=11),
)


@dataclass(frozen=True, slots=True)
class Meta:
    """A minimal `meta_info`, in the recorded shape."""

    finish_reason: object
    output_token_logprobs: object
    completion_tokens: int
    prompt_tokens: int | None = 3
    weight_version: str | None = None
    weight_versions: object = None


VOCABULARY = Vocabulary(10, special=(9,))
STOPPED = Meta({"type": "stop", "matched": 9}, [[-0.5, 4, None], [-0.25, 9, None]], 2)


def answer(meta: Meta) -> bytes:
    said = {name: value for name, value in msgspec.to_builtins(meta).items() if value is not None}
    return json.dumps({"text": "no ids from here", "output_ids": [], "meta_info": said}).encode()


def decode(meta: Meta) -> Generation:
    return checked(decode_response(answer(meta), REQUEST, vocab_size=10), REQUEST, VOCABULARY)


def test_a_request_has_every_sampling_value_and_no_logprob_start_len() -> None:
    sent = json.loads(protocol.encode_request(REQUEST, rid="r", max_new_tokens=5))
    assert sent == {
        "rid": "r",
        "input_ids": [1, 2, 3],
        "return_logprob": True,
        "stream": False,
        "sampling_params": {
            "max_new_tokens": 5,
            "temperature": 0.7,
            "top_p": 0.9,
            "top_k": 50,
            "min_p": 0.05,
            "stop_token_ids": [9],
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "no_stop_trim": True,
            "sampling_seed": 11,
        },
    }


def test_without_a_seed_none_is_sent() -> None:
    unseeded = replace(REQUEST, sampling=Sampling())
    sent = json.loads(protocol.encode_request(unseeded, rid="r", max_new_tokens=5))
    assert "sampling_seed" not in sent["sampling_params"]


@pytest.mark.parametrize("instance", ["django__django-1", "gson:pr-12", "café", "a b%2Fc"])
def test_a_routing_key_is_plain_ascii_and_names_the_episode(instance: str) -> None:
    episode = EpisodeId("job", instance, 12)
    key = protocol.routing_key(episode)
    assert key.isascii()
    assert key.isprintable()
    assert protocol.parse_routing_key(key) == episode


def test_ids_and_logprobs_come_from_the_logprob_entries() -> None:
    generation = decode(STOPPED)
    assert generation.token_ids == (4, 9)
    assert generation.logprobs == (-0.5, -0.25)
    assert generation.finish_reason is FinishReason.STOP
    assert generation.prompt_tokens == 3


def test_weight_versions_are_spans_over_the_output() -> None:
    spans = [{"version": "v1", "start": 0, "end": 1}, {"version": "v2", "start": 1, "end": 2}]
    generation = decode(replace(STOPPED, weight_version="v2", weight_versions=spans))
    assert generation.weight_versions == (WeightSpan("v1", 0, 1), WeightSpan("v2", 1, 2))


def test_an_older_engine_has_one_weight_version_for_all_tokens() -> None:
    generation = decode(replace(STOPPED, weight_version="v7"))
    assert generation.weight_versions == (WeightSpan("v7", 0, 2),)


def test_an_aborted_generation_keeps_what_it_sampled() -> None:
    finish = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
    generation = decode(Meta(finish, [[-1.0, 4, None]], 1))
    assert generation.finish_reason is FinishReason.ABORT
    assert generation.token_ids == (4,)


def test_a_call_aborted_in_the_queue_has_neither_prompt_tokens_nor_tokens() -> None:
    finish = {"type": "abort", "message": "Abort in waiting queue"}
    spans = [{"version": "default", "start": 0, "end": 0}]
    generation = decode(Meta(finish, [], 0, prompt_tokens=None, weight_versions=spans))
    assert generation == Generation((), (), FinishReason.ABORT, prompt_tokens=3)


@pytest.mark.parametrize(
    ("meta", "problem"),
    [
        (replace(STOPPED, output_token_logprobs=None), "no output_token_logprobs"),
        (replace(STOPPED, completion_tokens=3), "2 logprobs for 3 completion tokens"),
        (replace(STOPPED, output_token_logprobs=[[-1.0, 4, None], [None, 9, None]]), "finite"),
        (replace(STOPPED, output_token_logprobs=[[-1.0, 10, None], [-1.0, 9, None]]), "vocabulary"),
        (replace(STOPPED, output_token_logprobs=[[-1.0, -1, None], [-1.0, 9, None]]), "vocabulary"),
        (replace(STOPPED, finish_reason={"type": "tired"}), "unknown finish reason"),
        (replace(STOPPED, prompt_tokens=2), "read 2 tokens of a prompt of 3"),
    ],
)
def test_a_response_that_cannot_be_trained_on_is_an_error(meta: Meta, problem: str) -> None:
    with pytest.raises(InvalidAnswerError, match=problem) as caught:
        decode(meta)
    assert caught.value.retryable


def sampled(*logprobs: float) -> list[object]:
    return [*([logprob, 4, None] for logprob in logprobs[:-1]), [logprobs[-1], 9, None]]


def spans(*bounds: tuple[int, int]) -> list[object]:
    return [{"version": f"v{start}", "start": start, "end": end} for start, end in bounds]


@pytest.mark.threat(point=16)
@pytest.mark.parametrize(
    ("meta", "problem"),
    [
        (replace(STOPPED, output_token_logprobs=sampled(0.5, -1)), "logprob 0.5"),
        (replace(STOPPED, output_token_logprobs=sampled(0.00011, -1)), "logprob 0.00011"),
        (replace(STOPPED, output_token_logprobs=sampled(-1e30, -1)), "can't have been sampled"),
        (
            replace(STOPPED, output_token_logprobs=sampled(*[-1] * 8), completion_tokens=8),
            "output_token_logprobs has more than 7 items",
        ),
        (replace(STOPPED, output_token_logprobs=[[-1.0, 9, None]] * 2), "after a stop token"),
        (
            replace(
                STOPPED, finish_reason={"type": "stop"}, output_token_logprobs=[[-1, 4, None]] * 2
            ),
            "stop token",
        ),
        (Meta({"type": "stop"}, [], 0), "stop token"),
        (Meta({"type": "stop", "matched": []}, [], 0), "stop token"),
        (
            replace(STOPPED, finish_reason={"type": "stop", "matched": "NaN happened"}),
            "NaN happened",
        ),
        (replace(STOPPED, finish_reason={"type": "length", "length": 3}), "length is 3 for 2"),
        (replace(STOPPED, weight_versions=spans((0, 3))), r"\[0, 3\)"),
        (replace(STOPPED, weight_versions=spans((0, 1))), "do not cover 2"),
        (replace(STOPPED, weight_versions=spans((1, 2))), "do not cover 2"),
        (replace(STOPPED, weight_versions=spans((0, 2), (1, 2))), "one after the other"),
        (replace(STOPPED, weight_versions=spans((0, 2), (0, 2))), "one after the other"),
        (replace(STOPPED, weight_versions=spans((-1, 1), (1, 2))), "Expected `int` >= 0"),
        (replace(STOPPED, weight_versions=spans((0, 2), (2, 1))), "one after the other"),
        (replace(STOPPED, weight_version="v" * 300), "length <= 256"),
    ],
)
def test_a_response_to_something_else_than_was_asked_is_an_error(meta: Meta, problem: str) -> None:
    with pytest.raises(InvalidAnswerError, match=problem):
        decode(meta)


@pytest.mark.threat(point=16)
def test_a_logprob_may_round_to_slightly_above_zero() -> None:
    assert decode(replace(STOPPED, output_token_logprobs=sampled(-0.5, 5e-7))).logprobs[1] == 5e-7


@pytest.mark.threat(point=16)
@pytest.mark.parametrize("cached", [-1, 6])
def test_more_cached_tokens_than_there_are_is_an_error(cached: int) -> None:
    body = answer(STOPPED).replace(
        b'"prompt_tokens": 3', b'"prompt_tokens": 3, "cached_tokens": %d' % cached
    )
    with pytest.raises(InvalidAnswerError, match="cached"):
        decode_response(body, REQUEST, vocab_size=10)


@pytest.mark.threat(point=16)
@pytest.mark.parametrize(
    ("there", "instead"),
    [
        (b"[-0.5, 4, null]", b"[-0.5, 4.0, null]"),
        (b"[-0.5, 4, null]", b"[-0.5, true, null]"),
        (b"[-0.5, 4, null]", b'["-0.5", 4, null]'),
        (b"[-0.5, 4, null]", b"[NaN, 4, null]"),
        (b"[-0.5, 4, null]", b"[-1e999, 4, null]"),
        (b"[-0.5, 4, null]", b"[-0.5, 4, null, 0]"),
        (b"[-0.5, 4, null]", b"[-0.5, %s, null]" % (b"9" * 4000)),
        (b'"completion_tokens": 2', b'"completion_tokens": "2"'),
        (b'"text": "no ids from here"', b'"text": ' + b"[" * 200_000),
        (b'"text": "no ids from here"', b'"text": ' + b'{"a":' * 200_000),
    ],
)
def test_types_are_exact_and_depth_is_bounded(there: bytes, instead: bytes) -> None:
    body = answer(STOPPED)
    assert there in body
    with pytest.raises(InvalidAnswerError, match="not a /generate response"):
        decode_response(body.replace(there, instead), REQUEST, vocab_size=10)


MANY = 300_000


@pytest.mark.threat(point=16)
@pytest.mark.parametrize(
    ("field", "item"),
    [
        ("output_token_logprobs", b'[0,1,""]'),
        ("weight_versions", b'{"version":"","start":0,"end":0}'),
        ("output_token_sampling_mask", b"[]"),
        ("input_token_logprobs", b"[0,1,null]"),
    ],
)
def test_a_list_that_is_longer_than_asked_is_never_decoded(
    field: str, item: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []
    decoded = responses._decoded

    def counted(to: msgspec.json.Decoder[object], data: bytes | msgspec.Raw) -> object:
        lengths.append(len(bytes(data)))
        return decoded(to, data)

    monkeypatch.setattr(responses, "_decoded", counted)
    listed = b'"%b": [%b]' % (field.encode(), b",".join([item] * MANY))
    body = answer(STOPPED).replace(b'"completion_tokens"', listed + b', "completion_tokens"')
    wanted = replace(REQUEST, replay=ReplayRequest(sampling_mask=True, prompt_logprobs_from=2))
    body = body if field != "output_token_logprobs" else _moved_last(body, listed)
    with pytest.raises(InvalidAnswerError):
        decode_response(body, wanted, vocab_size=10)
    assert all(length < MANY for length in lengths[1:])


def _moved_last(body: bytes, listed: bytes) -> bytes:
    """Put the list behind the honest one: of two fields of one name, the last counts."""
    return body.replace(listed + b", ", b"").replace(b"}}", b", " + listed + b"}}")


@pytest.mark.threat(point=16)
def test_an_error_body_of_any_depth_is_read() -> None:
    error = protocol.error_from_response(500, b"[" * 500_000)
    assert type(error) is EngineLostError
    assert len(str(error)) < 1000


@pytest.mark.threat(point=6)
def test_the_bound_of_a_response_grows_with_what_was_asked() -> None:
    wide = replace(REQUEST, max_new_tokens=70, replay=ReplayRequest(sampling_mask=True))
    narrow = protocol.max_response_bytes(REQUEST)
    assert MAX_BODY_BYTES < narrow < protocol.max_response_bytes(wide)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"text": "x"}', b"<html>", b"\xff\xfe", b"null"])
def test_a_body_that_is_no_response_is_an_error(body: bytes) -> None:
    with pytest.raises(InvalidAnswerError):
        decode_response(body, REQUEST, vocab_size=10)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (
            400,
            b'{"error": "unknown field `max_tokens`, expected one of"}',
            BadRequestError,
        ),
        (400, b'{"error": {"message": "input_ids cannot be empty."}}', BadRequestError),
        (400, b'{"object": "error", "message": "1 validation error"}', BadRequestError),
        (400, b"Failed to parse the request body as JSON", BadRequestError),
        (401, b'{"error": "Unauthorized"}', UnauthorizedError),
        (404, b'{"detail": "Not Found"}', BadRequestError),
        (405, b'{"detail": "Method Not Allowed"}', BadRequestError),
        (429, b"", UnavailableError),
        (
            503,
            b'{"object": "error", "message": "The request queue is full.", "code": 503}',
            UnavailableError,
        ),
        (
            500,
            b'{"error": {"type": "Internal Server Error", "message": "x"}}',
            EngineLostError,
        ),
        (502, b"<html>Bad Gateway</html>", EngineLostError),
    ],
)
def test_each_shape_of_error_body_has_its_type(
    status: int, body: bytes, kind: type[EngineError]
) -> None:
    error = protocol.error_from_response(status, body)
    assert type(error) is kind
    assert error.why.startswith(f"HTTP {status}")
    may_help = kind in {UnavailableError, EngineLostError}
    assert error.retryable is may_help


@pytest.mark.parametrize(
    "message",
    [
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "Requested token count exceeds the model's maximum context length of 4096 tokens. You",
        "Input length (8189 tokens) exceeds the maximum allowed length (8186 tokens).",
    ],
)
def test_each_wording_of_a_full_context_has_one_type(message: str) -> None:
    error = protocol.error_from_response(400, json.dumps({"error": {"message": message}}).encode())
    assert type(error) is ContextOverflowError
    assert not error.retryable


REFUSED = b'{"error":{"message":"longer than the model\'s context length","code":400}}'


@pytest.mark.parametrize("body", [b"data: " + REFUSED + b"\n\ndata: [DONE]\n\n", REFUSED])
def test_an_error_inside_a_200_has_the_type_of_its_code(body: bytes) -> None:
    with pytest.raises(ContextOverflowError):
        decode_response(body, REQUEST, vocab_size=10)


def test_an_abort_with_a_status_is_the_error_it_names() -> None:
    finish = {"type": "abort", "status_code": 503, "message": "The request queue is full."}
    with pytest.raises(UnavailableError, match="accepts no more work"):
        decode(Meta(finish, [], 0))


def test_a_stream_that_was_not_requested_is_an_error() -> None:
    with pytest.raises(InvalidAnswerError, match="stream"):
        decode_response(b'data: {"text": ""}\n\n', REQUEST, vocab_size=10)


def test_a_long_error_message_is_truncated() -> None:
    assert len(protocol.error_from_response(400, b"x" * 100_000).why) < 1000


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7.0), (None, None), ("Fri, 31 Dec", None), ("-1", None)]
)
def test_retry_after_counts_seconds(value: str | None, seconds: float | None) -> None:
    error = protocol.error_from_response(503, b"", retry_after=value)
    assert isinstance(error, UnavailableError)
    assert error.retry_after_s == seconds


@pytest.mark.parametrize(
    ("info", "tokens"),
    [
        ({"max_total_num_tokens": 100}, 100),
        ({"max_total_num_tokens": 100, "dp_size": 4}, 400),
        ({"max_total_num_tokens": 100, "disable_radix_cache": True}, None),
        ({"max_total_num_tokens": 100, "enable_hierarchical_cache": True}, None),
        ({}, None),
    ],
)
def test_a_server_has_one_cache_for_each_rank_unless_nothing_is_lost_there(
    info: dict[str, object], tokens: int | None
) -> None:
    assert msgspec.convert(info, protocol.ServerInfo).cache_tokens == tokens
