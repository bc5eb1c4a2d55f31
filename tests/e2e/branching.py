"""A policy that does the same up to turn 2, and then what its seed says: a job brings it along.

Its first turns change files, folder and variables of a shell session; turn 2 of a job whose name
begins with `child` only looks, as the later turns of any other job do.
"""

from __future__ import annotations

import json

from tokenizers import Tokenizer

from swe_rollout.engine.base import EngineInfo, GenerateRequest
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, Generation

COMMANDS = (
    "mkdir -p made/deep && cd made/deep && export COLOUR=blue && echo zero > t0",
    "echo one > t1; rm -f t0; ln -s t1 link",
    "echo two > t2",
)
LOOK = "pwd; echo colour $COLOUR; ls /testbed/made/deep; git -C /testbed status --porcelain"


class Branching:
    """An engine whose turns follow from their number, the job's name and the seed."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json"))

    async def info(self) -> EngineInfo:
        return EngineInfo("branching", None, None, "1", tokenizer=str(tokenizer_path()))

    async def generate(self, request: GenerateRequest) -> Generation:
        is_child = request.episode.job.startswith("child")
        turn, seed = request.turn, request.sampling.seed
        if turn < 2 or (turn == 2 and not is_child):
            command = COMMANDS[turn]
        else:
            command = f"{LOOK}; echo {seed} >> /testbed/own.txt"
        call: dict[str, object] = {"name": "bash", "arguments": {"command": command}}
        if turn == 4:
            call = {"name": "submit", "arguments": {}}
        text = f"Seed {seed}.\n<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>"
        ids = tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)
        logprobs = tuple(-1 / (3 + index) for index in range(len(ids)))
        return Generation(ids, logprobs, FinishReason.STOP, prompt_tokens=len(request.input_ids))

    def release(self, episode: EpisodeId) -> None:
        pass

    async def aclose(self) -> None:
        pass
