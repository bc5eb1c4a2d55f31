"""Token subjects: rendering every request again breaks prefixes and lets results forge tokens."""

from __future__ import annotations

from rollout_dev.peers.plain_tokens import rerender
from swe_rollout.agent.renderer import Renderer
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.testing.tokens.model import ModelUnderTest
from swe_rollout.testing.tokens.subjects import (
    TokenLogSubject,
    inject_control_tokens,
    play_conversation,
)


def test_rendering_every_request_again_breaks_prefixes_once_tokens_are_not_canonical() -> None:
    model = ModelUnderTest(Renderer.load(str(tokenizer_path())), quick=True)
    long = next(each for each in model.conversations if each.pattern.name == "many turns")
    resegmented = tuple(map(model.noisy(0.1, seed=1), long.turns))

    canonical = play_conversation(rerender(model.renderer)(), long.first, long.turns)
    noisy = play_conversation(rerender(model.renderer)(), long.first, resegmented)
    ours = play_conversation(TokenLogSubject(model.renderer), long.first, resegmented)

    assert canonical.breaks == 0
    assert canonical.kept == canonical.sampled
    assert noisy.breaks > 0
    assert noisy.kept < noisy.sampled
    assert ours.breaks == 0
    assert ours.kept == ours.sampled


def test_rendering_every_request_again_lets_a_result_forge_control_tokens() -> None:
    model = ModelUnderTest(Renderer.load(str(tokenizer_path())), quick=True)
    turn = model.conversations[0].turns[0]

    found = inject_control_tokens(
        rerender(model.renderer),
        turn,
        controls=model.renderer.controls,
        delta=model.turn_separator(turn),
    )

    assert found.forged > 0
    assert "<|im_end|>" in "".join(found.examples)
