"""An engine for `bench scale`: scripted turns behind SGLang's API, each after a while.

    python -m rollout_dev.bench.scale_engine ROWS.jsonl HOST PORT MEAN_S

Delays follow the lengths of the turns of a recorded SWE-agent trajectory (marshmallow-1867): their
deciles relative to the mean. Which one a turn gets follows from its episode and its prompt.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from pathlib import Path
from typing import Final

from swe_rollout.datasets import base as datasets
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.scripted.engine import ScriptedEngine
from swe_rollout.engine.scripted.server import serve
from swe_rollout.spec.dataset import Dataset, SwebenchDataset
from swe_rollout.spec.policy import ScriptedPolicy
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.turn import Generation

DECILES: Final = (0.28, 0.50, 0.71, 0.76, 0.83, 1.02, 1.02, 1.24, 1.49, 2.15)
"""Their mean is 1."""
SCENARIOS: Final = ("gold", "wrong")


class DelayedEngine(TokenEngine):
    """Answers as another engine does, later."""

    def __init__(self, engine: TokenEngine, mean_s: float) -> None:
        self._engine = engine
        self._mean_s = mean_s

    async def info(self) -> EngineInfo:
        return await self._engine.info()

    async def generate(self, request: GenerateRequest) -> Generation:
        key = f"{request.episode} {len(request.input_ids)}".encode()
        await asyncio.sleep(self._mean_s * DECILES[zlib.crc32(key) % len(DECILES)])
        return await self._engine.generate(request)

    async def aclose(self) -> None:
        await self._engine.aclose()


async def _serve(rows: Path, host: str, port: int, mean_s: float) -> None:
    dataset = Dataset(swebench=SwebenchDataset(uri=str(rows)))
    loaded = await datasets.load(dataset, base_dir=rows.parent, on_progress=print)
    policy = ScriptedPolicy(scenarios=SCENARIOS)
    scripted = ScriptedEngine(policy, loaded.instances, tokenizer_path(), tool_format="hermes")
    await serve(
        DelayedEngine(scripted, mean_s),
        host=host,
        port=port,
        on_ready=lambda url: print(url, flush=True),
    )


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
