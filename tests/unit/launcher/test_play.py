"""Plain prompts: records in order, bounded concurrency, and failures that are recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from swe_rollout import SweRolloutError, play
from swe_rollout.agent.encoding import Scaffold
from swe_rollout.agent.renderer import Renderer
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.errors import EngineError
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import FinishReason, Generation

RENDERER = Renderer.load(str(tokenizer_path()))
LOOK = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'


@dataclass
class Answering(TokenEngine):
    """Says what it was asked, after a call where it is told so; fails at `bad`."""

    calls_first: bool = False
    running: int = 0
    most: int = 0

    async def info(self) -> EngineInfo:
        return EngineInfo(str(tokenizer_path()), None, None, None)

    async def generate(self, request: GenerateRequest) -> Generation:
        SEEN.append(self)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.01)
        self.running -= 1
        text = RENDERER.decode(request.input_ids.tolist())
        asked = text.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
        if "bad" in asked:
            raise EngineError("the engine is gone", retryable=False)
        said = LOOK if self.calls_first and request.turn == 0 else f"You said {asked[:80]}"
        ids = tuple(RENDERER._encoding.encode([Scaffold(said + "<|im_end|>")]))
        return Generation(ids, (-0.5,) * len(ids), FinishReason.STOP, len(request.input_ids))


SEEN: list[Answering] = []


def spec(agent: object = None, **engine: object) -> Mapping[str, object]:
    return {
        "policy": {
            "engine": {"use": f"{__name__}:Answering", "with": engine},
            "tokenizer": str(tokenizer_path()),
        },
        **({"agent": agent} if agent else {}),
    }


def test_every_prompt_has_a_record_in_order() -> None:
    """O2, O3, A10."""
    prompts = ["one", {"content": "two"}, [{"role": "user", "content": "three"}]]
    found = play(prompts, spec=spec())

    assert [each.stop_reason for each in found] == [StopReason.FINISHED] * 3
    assert ["one" in found[0].turns[0].text, "two" in found[1].turns[0].text] == [True, True]
    assert all(sum(each.loss_mask) == each.turns[0].completion_tokens for each in found)
    assert [each.reward for each in found] == [None] * 3
    assert play([], spec=spec()) == []


def test_an_exception_is_a_recorded_failure() -> None:
    """O3, WA3: it is no text of the assistant, and the others go on."""
    good, bad, after = play(["one", "bad", "two"], spec=spec(), concurrency=1)

    assert bad.failure is not None
    assert bad.failure.type == "EngineError"
    assert sum(bad.loss_mask) == 0
    assert (good.failure, after.failure) == (None, None)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_concurrency_is_bounded(concurrency: int) -> None:
    SEEN.clear()
    play([str(each) for each in range(9)], spec=spec(), concurrency=concurrency)
    assert SEEN[0].most == concurrency


def test_a_tool_that_needs_a_sandbox_is_an_observation() -> None:
    (found,) = play(["go"], spec=spec({"use": "general"}, calls_first=True))

    assert found.failure is None
    assert found.turns[0].observations[0].text.startswith("error: there is no sandbox")


def test_a_system_message_of_a_prompt_replaces_the_agents() -> None:
    """A14."""
    prompt = [{"role": "system", "content": "Be odd."}, {"role": "user", "content": "one"}]
    own, plain = play([prompt, "one"], spec=spec({"systemPrompt": "Be even."}))
    texts = [RENDERER.decode(each.token_ids) for each in (own, plain)]

    assert ("Be odd." in texts[0], "Be even." in texts[0]) == (True, False)
    assert "Be even." in texts[1]


@pytest.mark.parametrize(
    ("prompts", "fields", "concurrency"),
    [
        ([{"x": 1}], {}, 1),
        (["one"], {"store": {}}, 1),
        (["one"], {}, 0),
        (["one"], {"limits": 3}, 1),
    ],
)
def test_what_can_not_be_played_is_refused_before_anything_runs(
    prompts: list[object], fields: dict[str, object], concurrency: int
) -> None:
    with pytest.raises(SweRolloutError):
        play(prompts, spec={**spec(), **fields}, concurrency=concurrency)
