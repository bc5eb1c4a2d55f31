"""The scripted engine keeps the contract of engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from tokenizers import Tokenizer

from swe_rollout.engine.base import TokenEngine
from swe_rollout.engine.scripted.engine import ScriptedEngine
from swe_rollout.spec.policy import ScriptedPolicy
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.testing.extensions.engines import EngineContract
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance

TOKENIZER = Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json"))
OPENING = "<|im_start|>assistant\n"
TASK = Instance(instance_id="one", problem_statement="fix it", image="image:1")


class TestScriptedEngine(EngineContract):
    stop_token_ids = tuple(TOKENIZER.encode("<|im_end|>").ids)

    @pytest.fixture
    async def engine(self) -> AsyncIterator[TokenEngine]:
        engine = ScriptedEngine(
            ScriptedPolicy(scenarios=("empty",)),
            [TASK],
            str(tokenizer_path()),
            tool_format=ToolFormat.HERMES,
        )
        yield engine
        await engine.aclose()

    def prompt(self) -> Sequence[int]:
        ids: list[int] = TOKENIZER.encode("<|im_start|>user\nhi<|im_end|>\n" + OPENING).ids
        return ids

    def episode(self) -> EpisodeId:
        return EpisodeId("job", "one", 0)
