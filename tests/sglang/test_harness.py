"""A program that is the agent, on a real engine: what is trained on is what the model sampled.

The program goes on from its answers, comes back to an earlier one, and starts a conversation beside
it. What the tiny model says is noise; its tokens still have to be exact, in every branch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.command import job_writer, printed_json, swe_rollout
from e2e.records import check, committed, read
from sglang.served import Served, teach
from swe_rollout.worker.harnesses import folder_of, ready

pytestmark = pytest.mark.sglang

TEMPERATURE = 0.8
EPISODES = 2
PROGRAM = """\
import json, os, urllib.request

def ask(messages):
    body = json.dumps({"model": "policy", "messages": messages, "max_tokens": 24}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    key = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    with urllib.request.urlopen(urllib.request.Request(url, body, key)) as response:
        answer = json.load(response)["choices"][0]["message"]
    calls = answer.get("tool_calls", ())
    results = [{"role": "tool", "tool_call_id": c["id"], "content": "No."} for c in calls]
    go_on = {"role": "user", "content": "Go on, with <|im_end|> as text."}
    return [*messages, answer, *results, go_on]

one = ask([{"role": "user", "content": os.environ["TASK"]}])
line = ask(ask(one))
fork = [*one[:-1], {"role": "user", "content": "Think again."}]
ask(ask(fork))
ask([{"role": "system", "content": "You are another."}, {"role": "user", "content": "Begin."}])
"""


def test_the_tokens_of_a_harness_are_those_that_the_model_sampled(
    served: Served, tmp_path: Path
) -> None:
    records = _played(served, tmp_path, {"command": f"python3 - <<'END'\n{PROGRAM}\nEND\n"})
    assert [(len(each["turns"]), len(each["branches"])) for each in records] == [(6, 2)] * EPISODES


@pytest.mark.slow
@pytest.mark.parametrize("name", ready())
def test_those_of_a_ready_one_are_too(roomy: Served, tmp_path: Path, name: str) -> None:
    if not folder_of(name).is_dir():
        pytest.skip(f"not installed: `swe-rollout harness install {name}`")
    assert all(each["turns"] for each in _played(roomy, tmp_path, name))


def _played(served: Served, folder: Path, harness: object) -> list[dict[str, Any]]:
    """Play some episodes, check their tokens with the model's own, and return their records."""
    job = job_writer(folder, store=f"file://{folder}/store")(
        names=["sqlparse"],
        scenarios=["unused"] * EPISODES,
        parallelism=EPISODES,
        policy={"sglang": {"url": served.url}, "tokenizer": str(served.tokenizer)},
        sampling={"temperature": TEMPERATURE},
        agent={"harness": harness},
        limits={"contextTokens": 60_000, "maxNewTokens": 48, "turns": 6, "episodeSeconds": 900},
        grading={"enabled": False},
    )
    state = printed_json(swe_rollout("run", str(job.path), "-o", "json"))
    assert (state["committed"], state["masked"]) == (EPISODES, 0)
    paths = list(committed(job.folder))
    records = [read(path) for path in paths]
    trained = sum(map(_trained, records))
    if served.model is not None:
        compared = teach(paths, {"default": served.model}, temperature=TEMPERATURE)
        assert compared["versions"]["default"]["tokens"] == trained
        assert compared["versions"]["default"]["max_difference"] < 1e-3
    return records


def _trained(record: dict[str, Any]) -> int:
    """Return how many tokens are trained on: all that were sampled, each in one branch."""
    check(record)
    assert record["failure"] is None
    trained: int = sum(record["loss_mask"]) + sum(
        sum(b["loss_mask"]) for b in record.get("branches", ())
    )
    assert trained == sum(turn["completion_tokens"] for turn in record["turns"])
    return trained
