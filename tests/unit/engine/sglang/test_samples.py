"""Every recorded exchange with a real server decodes to a generation or a typed error."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checkout import SHARED
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.errors import CallLoss, EngineLostError
from swe_rollout.engine.pool.probe import Loads
from swe_rollout.engine.sglang import protocol
from swe_rollout.engine.sglang.responses import decode_response
from swe_rollout.errors import EngineError
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.turn import FinishReason, Generation
from unit.engine.engine_parts import request

SAMPLES = Path(os.environ.get("SWE_ROLLOUT_SGLANG_SAMPLES") or SHARED / "sglang" / "samples")
FILES = sorted(SAMPLES.glob("*.json"))
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


def exchanges() -> list[Exchange]:
    """Load all calls with a response, except batches, which the client never sends."""
    found = [exchange(file) for file in FILES]
    return [each for each in found if each is not None]


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


CALLS = [each for each in exchanges() if each.path == "/generate"]
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


@pytest.mark.parametrize("name", ["120_router_worker_killed_midgen", "121_router_after_kill_0"])
def test_a_router_that_lost_its_worker_is_distinguished_from_a_server_that_failed(
    name: str,
) -> None:
    (call,) = (each for each in CALLS if each.name == name)
    found = outcome(call)
    assert isinstance(found, EngineLostError)
    assert found.loss is CallLoss.UPSTREAM


@pytest.mark.parametrize("name", ["79c_v1_loads", "103_loads"])
def test_recorded_loads_are_read(name: str) -> None:
    (each,) = (each for each in exchanges() if each.name == name)
    assert msgspec.json.decode(each.body, type=Loads).calls == 0
