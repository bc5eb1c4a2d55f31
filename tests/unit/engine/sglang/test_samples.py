"""Every recorded exchange with a real server decodes to a generation or a typed error."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checkout import SGLANG_SAMPLES
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.errors import (
    BadRequestError,
    CallLoss,
    ContextOverflowError,
    EngineLostError,
    InvalidAnswerError,
    UnauthorizedError,
    UnavailableError,
)
from swe_rollout.engine.pool.probe import Loads
from swe_rollout.engine.sglang import protocol
from swe_rollout.engine.sglang.responses import decode_response
from swe_rollout.errors import EngineError
from swe_rollout.tokens.log import InputIds
from swe_rollout.tokens.replay import ExpertShape, ReplayRequest, ReplayRows
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan
from unit.engine.engine_parts import request

FILES = sorted(SGLANG_SAMPLES.glob("*.json"))
VOCAB_SIZE = 8064
pytestmark = pytest.mark.skipif(
    not FILES,
    reason="needs recorded SGLang responses: set SWE_ROLLOUT_SGLANG_SAMPLES to a folder of them",
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One recorded call and its response; `content` is its JSON where that is an object."""

    name: str
    path: str
    status: int
    body: bytes
    asked: GenerateRequest
    content: dict[str, Any]


def exchange(file: Path) -> Exchange | None:
    sample = json.loads(file.read_text())
    if not isinstance(sample.get("request"), dict) or sample["status"] is None:
        return None
    response, sent = sample["response"], sample["request"]["body"]
    if isinstance(response, list):
        return None
    content = response if isinstance(response, dict) else {}
    body = response if isinstance(response, str) else json.dumps(response)
    ids = sent.get("input_ids") if isinstance(sent, dict) else None
    if not isinstance(ids, list) or not all(isinstance(each, int) for each in ids):
        # Of long prompts only the number of tokens was recorded.
        ids = [0] * int(content.get("meta_info", {}).get("prompt_tokens", 1))
    params = sent.get("sampling_params") or {} if isinstance(sent, dict) else {}
    asked = replace(
        request(),
        input_ids=InputIds.of(ids),
        max_new_tokens=params.get("max_new_tokens", 128) if isinstance(params, dict) else 128,
        stop_token_ids=(),
    )
    return Exchange(
        file.stem, sample["request"]["path"], sample["status"], body.encode(), asked, content
    )


def outcome(recorded: Exchange) -> Generation | EngineError:
    if recorded.status != 200:
        return protocol.error_from_response(recorded.status, recorded.body)
    try:
        return decode_response(recorded.body, recorded.asked, vocab_size=VOCAB_SIZE)
    except EngineError as error:
        return error


RECORDED = {each.name: each for each in map(exchange, FILES) if each is not None}
"""All calls with a response, except batches, which the client never sends."""
CALLS = [each for each in RECORDED.values() if each.path == "/generate"]
OTHERS = {"78_sess_turn2", "17c_stop_string"}
"""Responses to what the client never sends: through a session, and with a text to stop at."""


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_a_recorded_call_is_a_generation_with_logprobs_or_a_typed_error(call: Exchange) -> None:
    found = outcome(call)
    meta = call.content.get("meta_info", {})
    if call.status == 200 and "output_token_logprobs" in meta and call.name not in OTHERS:
        assert isinstance(found, Generation), found
        assert list(found.token_ids) == call.content["output_ids"]
        covered = sum(span.end - span.start for span in found.weight_versions)
        assert covered == len(found.logprobs) == len(found.token_ids)
        return
    assert isinstance(found, EngineError)
    assert type(found) is not EngineError
    assert found.what


def test_the_recorded_calls_cover_every_way_to_end() -> None:
    kinds = Counter(
        found.finish_reason.value if isinstance(found, Generation) else type(found).__name__
        for found in map(outcome, CALLS)
    )
    wanted = {reason.value for reason in FinishReason} | {
        "BadRequestError",
        "ContextOverflowError",
        "EngineLostError",
        "InvalidAnswerError",
        "UnauthorizedError",
        "UnavailableError",
    }
    assert wanted <= set(kinds)


@pytest.mark.parametrize(
    ("name", "finish", "count"),
    [
        ("10_generate_basic", FinishReason.LENGTH, 8),
        ("17b_stop_no_trim", FinishReason.STOP, 28),
        ("20_max0", FinishReason.LENGTH, 0),
        ("60_abort_rid_result", FinishReason.ABORT, 51),
        ("101_q_waiting_aborted", FinishReason.ABORT, 0),
        ("73_midver_result", FinishReason.LENGTH, 60),
        ("100_moe_gen", FinishReason.LENGTH, None),
        ("105_custom_logit_processor", FinishReason.STOP, 6),
        ("110_router_gen", FinishReason.LENGTH, None),
    ],
)
def test_a_recorded_call_ends_as_it_did(name: str, finish: FinishReason, count: int | None) -> None:
    found = outcome(RECORDED[name])
    assert isinstance(found, Generation)
    assert found.finish_reason is finish
    assert count in (None, len(found.token_ids))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("30_err_too_long", ContextOverflowError),
        ("31_err_exact_ctx", ContextOverflowError),
        ("31c_input_plus_max_new_over", ContextOverflowError),
        ("31d_stream_too_long", ContextOverflowError),
        ("32_err_empty_ids", BadRequestError),
        ("35_err_unknown_sampling", BadRequestError),
        ("37_err_bad_type", BadRequestError),
        ("39_err_bad_json", BadRequestError),
        ("55_404", BadRequestError),
        ("56_405", BadRequestError),
        ("101_q_full", UnavailableError),
        ("114_router_bad_json", BadRequestError),
        ("120_router_worker_killed_midgen", EngineLostError),
        ("150_no_api_key", UnauthorizedError),
        ("16_generate_nologprob", InvalidAnswerError),
        ("51_stream", InvalidAnswerError),
    ],
)
def test_a_recorded_error_has_its_type(name: str, kind: type[EngineError]) -> None:
    assert type(outcome(RECORDED[name])) is kind


def test_the_recorded_update_in_mid_generation_has_two_spans() -> None:
    found = outcome(RECORDED["73_midver_result"])
    assert isinstance(found, Generation)
    assert found.weight_versions == (WeightSpan("v1", 0, 5), WeightSpan("v2", 5, 60))


def recorded_rows(name: str, replay: ReplayRequest) -> ReplayRows | None:
    call = RECORDED[name]
    asked = replace(call.asked, replay=replay)
    return decode_response(call.body, asked, vocab_size=VOCAB_SIZE).replay


def test_a_recorded_sampling_mask_is_read() -> None:
    rows = recorded_rows("53_sampling_mask", ReplayRequest(sampling_mask=True))
    assert rows is not None
    assert [len(kept) for kept in rows.kept_ids] == [5, 5, 5]
    assert rows.kept_logprobs[0] == pytest.approx(-1.58738, abs=1e-4)


def test_recorded_experts_of_a_server_without_them_are_an_error() -> None:
    with pytest.raises(InvalidAnswerError, match="no routed experts"):
        recorded_rows("24_routed_experts", ReplayRequest(experts=ExpertShape(layers=2, topk=3)))


@pytest.mark.parametrize("name", ["120_router_worker_killed_midgen", "121_router_after_kill_0"])
def test_a_router_that_lost_its_worker_is_distinguished_from_a_server_that_failed(
    name: str,
) -> None:
    found = outcome(RECORDED[name])
    assert isinstance(found, EngineLostError)
    assert found.loss is CallLoss.UPSTREAM


@pytest.mark.parametrize("name", ["79c_v1_loads", "103_loads"])
def test_recorded_loads_are_read(name: str) -> None:
    assert msgspec.json.decode(RECORDED[name].body, type=Loads).calls == 0
