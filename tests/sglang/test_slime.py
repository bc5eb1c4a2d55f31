"""slime's generate at SGLang's own router, as slime starts it, in front of a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sglang.served import Served, command, teach
from swe_rollout.integrations import slime
from swe_rollout.launcher.sync import let_go
from unit.integrations.rollouts import write_job
from unit.integrations.slime_fields import Sample, Status, arguments

pytestmark = [pytest.mark.sglang, pytest.mark.slow]

TEMPERATURE = 0.8
LIMITS = {"turns": 3, "contextTokens": 8000, "maxNewTokens": 64, "formatErrors": 100,
          "cutTurns": "answer"}  # fmt: skip


@pytest.fixture(scope="module")
def router(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a router with the policy and the retries that it has by default, as slime does."""
    state: Path = tmp_path_factory.mktemp("router")
    yield command("router", "--state", state, "--", "--worker-urls", served.url)
    command("down", "--state", state)


def write(sample: Any, path: Path) -> Path:
    """Write what slime trains on as a record that the teacher reads."""
    start = len(sample.tokens) - sample.response_length
    ends = accumulate(len(list(run)) for _, run in groupby(sample.loss_mask))
    record = {
        "episode": sample.metadata["swe_rollout"]["episode"],
        "token_ids": sample.tokens,
        "logprobs": [None] * start + sample.rollout_log_probs,
        "segments": [
            {"kind": "sampled", "start": start + begin, "end": start + end, "turn": 0}
            for begin, end in pairwise((0, *ends))
            if sample.loss_mask[begin]
        ],
    }
    path.write_text(json.dumps(record))
    return path


async def test_samples_of_the_router_have_the_probabilities_of_the_model(
    served: Served, router: str, tmp_path: Path
) -> None:
    if served.model is None:
        pytest.skip("needs the checkpoint of the server: SGLANG_MODEL")
    policy = {"sglang": {"url": "http://127.0.0.1:9"}}
    job = write_job(tmp_path, policy=policy, limits=LIMITS)
    address = urlsplit(router)
    args = arguments(
        swe_rollout_job=str(job),
        hf_checkpoint=str(served.tokenizer),
        sglang_router_ip=address.hostname,
        sglang_router_port=address.port,
    )
    samples: list[Any] = [
        Sample(index=at, group_index=at // 2, metadata={"instance_id": ("one", "two")[at // 2]})
        for at in range(4)
    ]
    params = {"temperature": TEMPERATURE, "max_new_tokens": 2048}
    try:
        await asyncio.gather(*(slime.generate(args, each, params) for each in samples))
    finally:
        await let_go()

    assert {each.status for each in samples} <= {Status.COMPLETED, Status.TRUNCATED}
    assert all(each.weight_versions == ["default"] for each in samples)
    assert len({each.metadata["swe_rollout"]["episode"] for each in samples}) == 4
    trained = sum(sum(each.loss_mask) for each in samples)
    assert trained > 100
    records = [write(each, tmp_path / f"{each.index}.json") for each in samples]
    report = teach(records, {"default": served.model}, temperature=TEMPERATURE)
    assert (report["records"], report["tokens"]) == (4, trained)
    assert report["max_difference"] < 1e-3
