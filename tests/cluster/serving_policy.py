"""An engine whose agent leaves a server running, counts, and looks whether the server still runs.

It says what the test wants it to say, and holds a turn back until the test lets it go.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer

from rollout_dev.counting import SUBMIT
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan

FOLDER: Final = "SERVING_POLICY_FOLDER"
"""The variable with the folder in which test and engine meet."""
HELD: Final = 2
"""The turn that is held back."""


class Serving(TokenEngine):
    """Starts a process in its first turn."""

    def __init__(self, last_but_one: str) -> None:
        """`last_but_one`: the command of the turn that is held back."""
        self._folder = Path(os.environ[FOLDER])
        self._tokenizer = Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json"))
        self._texts = (
            _bash("sleep 1000 >/dev/null 2>&1 & echo $! >/tmp/server; echo 0 >>counted"),
            _bash("echo 1 >>counted"),
            _bash(last_but_one),
            SUBMIT,
        )

    async def info(self) -> EngineInfo:
        return EngineInfo("serving", None, None, "1", tokenizer=str(tokenizer_path()))

    async def generate(self, request: GenerateRequest) -> Generation:
        asked = self._folder / f"asked-{request.turn}"
        await asyncio.to_thread(asked.touch)
        if request.turn == HELD:
            await asyncio.to_thread(self._wait)
        text = self._texts[request.turn]
        ids = tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)
        return Generation(
            ids,
            (-0.5,) * len(ids),
            FinishReason.STOP,
            prompt_tokens=len(request.input_ids),
            weight_versions=(WeightSpan("1", 0, len(ids)),),
        )

    def _wait(self) -> None:
        while (self._folder / "held").exists():
            time.sleep(0.05)


def _bash(command: str) -> str:
    body = json.dumps({"name": "bash", "arguments": {"command": command}})
    return f"I work.\n<tool_call>\n{body}\n</tool_call><|im_end|>"
