"""A program that plays a job by itself: `killed_program.py stream|session FOLDER`.

Its engine writes a number into a file in each of some turns, slowly enough to be killed between.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tokenizers import Tokenizer

from swe_rollout import RolloutJob, Trajectory
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.turn import FinishReason, Generation

TURNS = 6
TASK = "sqlparse-0.5.2"
FOLDER = tokenizer_path()
CALL = '<tool_call>\n{"name": "%s", "arguments": {%s}}\n</tool_call><|im_end|>'


class SlowEngine(TokenEngine):
    """Writes its turn's number into `turns`, in each turn but the last."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))

    async def info(self) -> EngineInfo:
        return EngineInfo("slow", None, None, None, tokenizer=str(FOLDER))

    async def generate(self, request: GenerateRequest) -> Generation:
        await asyncio.sleep(0.5)
        write = ("bash", f'"command": "echo {request.turn} >> turns"')
        text = CALL % (write if request.turn < TURNS else ("submit", ""))
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        count = len(request.input_ids)
        return Generation(tuple(ids), (0.0,) * len(ids), FinishReason.STOP, count)


def job(folder: Path) -> RolloutJob:
    spec = {
        "dataset": {"releasePairs": {"names": ["sqlparse"]}},
        "samples": 2,
        "policy": {"scripted": {}},
        "store": {"uri": f"file://{folder}/runs"},
    }
    return RolloutJob.model_validate({"metadata": {"name": "demo"}, "spec": spec})


async def streamed(folder: Path) -> AsyncIterator[Trajectory]:
    async with job(folder).stream(f"t{os.getpid()}", engine=SlowEngine()) as groups:
        async for group in groups:
            for each in group.trajectories:
                yield each


async def by_session(folder: Path) -> AsyncIterator[Trajectory]:
    async with job(folder).session(engine=SlowEngine(), stored=True) as session:
        for each in await asyncio.gather(
            *(session.run_episode(TASK, sample=number) for number in range(2))
        ):
            yield each


async def main(how: str, folder: Path) -> None:
    async for each in {"stream": streamed, "session": by_session}[how](folder):
        resumed = 0 if each.resumption is None else each.resumption.times
        numbers = [int(line[1:]) for line in each.patch.splitlines() if line[1:].isdecimal()]
        sys.stdout.write(
            json.dumps({"episode": str(each.episode), "resumed": resumed, "turns": numbers}) + "\n"
        )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
