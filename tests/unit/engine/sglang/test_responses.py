"""Replay rows: requested, checked row by row, never guessed."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

from swe_rollout.engine.errors import InvalidAnswerError
from swe_rollout.engine.scripted.server import ServerOptions, experts_of, prompt_logprob
from swe_rollout.engine.sglang import protocol
from swe_rollout.engine.sglang.responses import decode_response
from swe_rollout.errors import InternalError
from swe_rollout.tokens.replay import ExpertShape, ReplayRequest, ReplayRows
from unit.engine.engine_parts import Echo, pool_of, request, served

SHAPE = ExpertShape(layers=2, topk=3)
PROMPT = (5, 6, 7, 8)
OUTPUT = (1, 9)
ALL = ReplayRequest(experts=SHAPE, experts_from=2, sampling_mask=True, prompt_logprobs_from=3)
ROWS = np.arange(5 * 2 * 3, dtype=np.int32).reshape(5, 2, 3)
"""For each of the six ids except the last."""


def encoded(rows: object) -> str:
    return base64.b64encode(np.asarray(rows, dtype="<i4").tobytes()).decode()


GOOD: dict[str, object] = {
    "routed_experts": encoded(ROWS[2:]),
    "output_token_sampling_mask": [[1, 2], [9]],
    "output_token_sampling_logprobs": [-0.5, 0.0],
    "input_token_logprobs": [[None, 7, None], [-2.5, 8, None]],
}


def decode(
    replay: ReplayRequest, returned: dict[str, object], *, output: tuple[int, ...] = OUTPUT
) -> ReplayRows | None:
    meta: dict[str, object] = {
        "finish_reason": {"type": "length"} if output else {"type": "abort"},
        "completion_tokens": len(output),
        "output_token_logprobs": [[-1.0, token_id, None] for token_id in output],
        **returned,
    }
    body = json.dumps({"meta_info": meta}).encode()
    asked = request(*PROMPT, replay=replay)
    return decode_response(body, asked, vocab_size=10).replay


def sent(replay: ReplayRequest) -> dict[str, object]:
    body = protocol.encode_request(request(*PROMPT, replay=replay), rid="r", max_new_tokens=5)
    plain = protocol.encode_request(request(*PROMPT), rid="r", max_new_tokens=5)
    known = json.loads(plain)
    return {name: value for name, value in json.loads(body).items() if name not in known}


def test_only_what_is_wanted_is_requested() -> None:
    assert sent(ReplayRequest()) == {}
    assert sent(ALL) == {
        "return_routed_experts": True,
        "routed_experts_start_len": 2,
        "return_sampling_mask": True,
        "sampling_logprobs_mode": "selected",
        "logprob_start_len": 2,
    }


@pytest.mark.parametrize("start", [0, 1])
def test_the_logprob_of_a_first_id_is_never_requested(start: int) -> None:
    with pytest.raises(InternalError, match="cached or not"):
        sent(ReplayRequest(prompt_logprobs_from=start))


def test_requested_rows_are_decoded() -> None:
    rows = decode(ALL, GOOD)
    assert rows is not None
    assert rows.experts is not None
    assert np.array_equal(rows.experts, ROWS[2:])
    assert rows.kept_ids == ((1, 2), (9,))
    assert rows.kept_logprobs == (-0.5, 0.0)
    assert rows.prompt_logprobs == (-2.5,)


def test_rows_before_the_requested_start_are_dropped() -> None:
    rows = decode(ALL, GOOD | {"routed_experts": encoded(ROWS)})
    assert rows is not None
    assert rows.experts is not None
    assert np.array_equal(rows.experts, ROWS[2:])


def test_rows_that_were_not_requested_are_ignored() -> None:
    assert decode(ReplayRequest(), {"routed_experts": "?"}) == ReplayRows()


def test_a_call_that_was_aborted_in_the_queue_has_no_rows() -> None:
    assert decode(ALL, {"input_token_logprobs": []}, output=()) is None


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ({"routed_experts": None}, "returned no routed experts"),
        ({"routed_experts": encoded(ROWS[1:])}, "4 rows of routed experts instead of 3"),
        ({"routed_experts": encoded(ROWS[3:])}, "2 rows of routed experts instead of 3"),
        ({"routed_experts": ""}, "0 rows"),
        ({"routed_experts": encoded(range(7))}, "do not form rows of 2 layers with 3 experts"),
        ({"routed_experts": "no base64!"}, "do not form rows of 2 layers"),
        ({"routed_experts": encoded(ROWS[2:] - 40)}, "negative"),
        ({"output_token_sampling_mask": None}, "returned no sampling mask"),
        ({"output_token_sampling_logprobs": None}, "returned no sampling mask"),
        ({"output_token_sampling_mask": [[1, 2]]}, "1 sampling masks for 2"),
        ({"output_token_sampling_logprobs": [-0.5]}, "sampling masks"),
        ({"output_token_sampling_logprobs": [-0.5, None]}, "finite"),
        ({"output_token_sampling_mask": [[2], [9]]}, "not in its sampling mask"),
        ({"output_token_sampling_mask": [[1, 10], [9]]}, "outside the vocabulary"),
        ({"output_token_sampling_mask": [[1, -1], [9]]}, "outside the vocabulary"),
        ({"output_token_sampling_logprobs": [-0.5, 0.1]}, "probability above 1"),
        ({"input_token_logprobs": [[None, 7, None], [0.1, 8, None]]}, "probability above 1"),
        ({"input_token_logprobs": None}, "returned no logprobs of the prompt"),
        ({"input_token_logprobs": []}, "returned no logprobs of the prompt"),
        ({"input_token_logprobs": [[None, 8, None]]}, "ids that were not sent"),
        ({"input_token_logprobs": [[None, 7, None], [-1.0, 7, None]]}, "ids that were not sent"),
        ({"input_token_logprobs": [[None, 7, None], [None, 8, None]]}, "finite"),
    ],
)
def test_rows_that_do_not_fit_are_an_error(returned: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidAnswerError, match=problem):
        decode(ALL, GOOD | returned)


async def test_over_http_every_row_is_where_it_belongs() -> None:
    async with served(Echo(), ServerOptions(experts=SHAPE)) as url, pool_of(url) as pool:
        first = await pool.generate(request(*PROMPT, replay=replace(ALL, experts_from=0)))
        longer = (*PROMPT, *first.token_ids, 70, 71)
        again = ReplayRequest(
            experts=SHAPE, experts_from=5, sampling_mask=True, prompt_logprobs_from=6
        )
        second = await pool.generate(request(*longer, turn=1, replay=again))
    assert first.replay is not None
    assert second.replay is not None
    assert first.replay.experts is not None
    assert second.replay.experts is not None
    returned = np.concatenate([first.replay.experts, second.replay.experts])
    assert np.array_equal(returned, experts_of([*longer, *second.token_ids][:-1], SHAPE))
    assert second.replay.prompt_logprobs == (prompt_logprob(70), prompt_logprob(71))
    assert second.replay.kept_ids == tuple((each,) for each in second.token_ids)


async def test_a_server_that_was_not_started_for_experts_is_an_error() -> None:
    async with served(Echo()) as url, pool_of(url) as pool:
        with pytest.raises(InvalidAnswerError, match="no routed experts") as caught:
            await pool.generate(request(*PROMPT, replay=ALL))
    assert "--enable-return-routed-experts" in caught.value.fix
