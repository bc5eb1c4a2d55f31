"""A policy that counts its turns in a file, for jobs whose process is killed.

What a turn asks for depends on its number alone, and its effect is a line of the file: a command
that ran twice, or not at all, is seen in the patch. An engine of a user's own, as jobs name one.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Final

import yaml
from tokenizers import Tokenizer

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan

FILE: Final = "counted.txt"
NAME: Final = "counting"
ASKED: Final = "COUNTING_ASKED"


class Counting(TokenEngine):
    """Asks for one more line in each turn, and then submits."""

    def __init__(self, turns: int = 20, pause_s: float = 0.0) -> None:
        """The file that the variable `COUNTING_ASKED` names gets a line for each turn sampled."""
        self._turns = turns
        self._pause_s = pause_s
        self._asked = os.environ.get(ASKED, "")
        self._tokenizer = Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json"))

    async def info(self) -> EngineInfo:
        return EngineInfo(NAME, None, None, "1", tokenizer=str(tokenizer_path()))

    async def generate(self, request: GenerateRequest) -> Generation:
        await asyncio.sleep(self._pause_s)
        if self._asked:
            with Path(self._asked).open("a") as file:  # noqa: ASYNC230 - one short line
                file.write(f"{request.episode} {request.turn}\n")
        text = call(request.turn) if request.turn < self._turns - 1 else SUBMIT
        ids = tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)
        return Generation(
            ids,
            tuple(-1 / (3 + index) for index in range(len(ids))),
            FinishReason.STOP,
            prompt_tokens=len(request.input_ids),
            weight_versions=(WeightSpan("1", 0, len(ids)),),
        )

    async def aclose(self) -> None:
        pass


SUBMIT: Final = '<tool_call>\n{"name": "submit", "arguments": {}}\n</tool_call><|im_end|>'


def call(turn: int) -> str:
    """Return what the policy says in a turn but the last."""
    command = f"echo {turn} >> {FILE}; cat {FILE} | tr '\\n' ' '"
    body = json.dumps({"name": "bash", "arguments": {"command": command}})
    return f"I count.\n<tool_call>\n{body}\n</tool_call><|im_end|>"


def counted(turns: int) -> str:
    """Return what the file holds when each command has run once."""
    return "".join(f"{turn}\n" for turn in range(turns - 1))


def write_job(
    folder: Path,
    *,
    episodes: int,
    turns: int,
    parallelism: int,
    pause_s: float,
    resume: str = "exact",
) -> Path:
    """Write the job whose policy counts, with its store beside it; return its file."""
    use = {"use": "rollout_dev.counting:Counting"}
    job = {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        "metadata": {"name": "job"},
        "spec": {
            "dataset": {"releasePairs": {"names": ["python-dotenv"]}},
            "samples": episodes,
            "parallelism": parallelism,
            "policy": {"engine": use | {"with": {"turns": turns, "pause_s": pause_s}}},
            "limits": {"turns": turns + 1, "contextTokens": 131072},
            "grading": {"enabled": False},
            "retry": {"resume": resume},
            "sandbox": {"local": {}},
            "store": {"uri": f"file://{folder}/store"},
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return path
