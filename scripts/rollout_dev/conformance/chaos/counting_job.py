"""A job whose records show by themselves whether a fault affected it.

Its policy appends one more line to a file in each turn, and then submits. The test passes if the
file has each line once. So an episode is resolved if and only if each command took effect once, the
work reached the grader, and the grader ran.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from tokenizers import Tokenizer

from rollout_dev.conformance.chaos.processes import Json
from rollout_dev.counting import FILE, SUBMIT, call, counted
from swe_rollout.testing.tiny import tokenizer_path

ENGINE_PORT: Final = 30000
STORE_PORT: Final = 9000
STORE: Final = "s3://rollouts"
_RESPONSE_END: Final = "</tool_response>"
_TEST: Final = "TestCounted"
_ENDED: Final = ("submitted", "finished")
_LOGPROB: Final = -0.5
HARNESS: Final = Path(__file__).parents[4] / "tests" / "e2e" / "mini_harness.py"
"""A program that is the agent, and that never asks twice."""


def script(turns: int, *, harness: bool = False) -> str:
    """Return the script of `generate_server` whose turn k asks for line k."""
    tokenizer = Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json"))
    last = "I have counted.<|im_end|>" if harness else SUBMIT
    texts = [*(call(turn) for turn in range(turns - 1)), last]
    responses = [
        {"ids": tokenizer.encode(text, add_special_tokens=False).ids, "text": text}
        for text in texts
    ]
    return json.dumps(
        {
            "marker": tokenizer.token_to_id(_RESPONSE_END),
            "responses": [{**each, "logprob": _LOGPROB} for each in responses],
        }
    )


def row(original: Mapping[str, object], turns: int, number: int = 1) -> dict[str, object]:
    """Return a task with the image and base of a row; tasks differ only in their number."""
    lines = counted(turns).splitlines()
    added = "".join(f"+{line}\n" for line in lines)
    patch = (
        f"diff --git a/{FILE} b/{FILE}\nnew file mode 100644\n--- /dev/null\n+++ b/{FILE}\n"
        f"@@ -0,0 +1,{len(lines)} @@\n{added}"
    )
    expected = " ".join(lines)
    check = (
        f'echo "=== RUN {_TEST}"; if [ "$(tr "\\n" " " <{FILE} 2>/dev/null)" = "{expected} " ]; '
        f'then echo "--- PASS: {_TEST} (0.00s)"; else echo "--- FAIL: {_TEST} (0.00s)"; fi'
    )
    return {
        **original,
        "instance_id": f"count__count-{number}",
        "problem_statement": "Count.",
        "patch": patch,
        "test_patch": "",
        "FAIL_TO_PASS": [_TEST],
        "PASS_TO_PASS": [],
        "log_parser": "gotest",
        "test_cmd": [check],
    }


def document(
    name: str,
    *,
    dataset: str,
    host: str,
    samples: int,
    parallelism: int,
    workers: int,
    harness: bool = False,
) -> Json:
    """Return the RolloutJob; `host` is the relay's name, `dataset` an address in the store."""
    made: Json = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    spec = made["spec"]
    made["metadata"]["name"] = name
    spec["dataset"]["swebench"]["uri"] = dataset
    spec["policy"]["sglang"]["url"] = f"http://{host}:{ENGINE_PORT}"
    spec["store"] = {"uri": STORE}
    spec["workers"]["count"] = workers
    spec |= {"samples": samples, "parallelism": parallelism}
    if harness:
        program = HARNESS.read_text("utf-8")
        command = f"python3 - <<'END_OF_PROGRAM'\n{program}\nEND_OF_PROGRAM\n"
        spec["agent"] = {"harness": {"command": command}}
    return made


@dataclass(frozen=True, slots=True)
class Verdict:
    """The effect of the fault on an episode, according to its record."""

    episode: str
    doubled: bool
    """Whether a command took effect twice."""
    charged: bool
    """Whether the policy got less than its full reward, or the episode is masked."""
    resumed: bool
    attached: bool
    """Whether it was resumed in its original sandbox."""
    problem: str


def verdict_of(record: Json, turns: int) -> Verdict:
    """Judge a committed record of the job."""
    lines = [line[1:] for line in str(record["patch"]).splitlines() if line[1:].isdigit()]
    is_counted = lines == counted(turns).splitlines()
    is_right = record["reward"] == 1.0 and record["stop_reason"] in _ENDED and is_counted
    resumption = record.get("resumption")
    said = (record["reward"], record["stop_reason"], record.get("failure"), lines)
    return Verdict(
        episode=str(record["episode"]),
        doubled=len(set(lines)) < len(lines),
        charged=not is_right,
        resumed=resumption is not None,
        attached=bool(resumption and resumption["attached"]),
        problem="" if is_right else f"{record['episode']}: {said}",
    )
