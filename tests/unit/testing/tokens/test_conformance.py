"""Token conformance: correct renderers pass, and each kind of broken one fails its own check."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from pathlib import Path

import pytest

from rollout_dev import families
from swe_rollout.agent.encoding import Scaffold
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.renderer import Rendered, Renderer
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.testing.tokens import model
from swe_rollout.testing.tokens.conformance import check_conformance
from swe_rollout.testing.tokens.subjects import TokenLogSubject, fake_logprobs
from swe_rollout.types.turn import ToolCall

SOME = ("qwen3_5", "glm4_5", "kimi_k2", "llama3", "gpt_oss")
TINY = str(tokenizer_path())


def failed(renderer: Renderer) -> set[str]:
    return {
        check.name for check in check_conformance(renderer, quick=True).checks if not check.passed
    }


def subclass_of_tiny(kind: type[Renderer]) -> Renderer:
    return kind.load(TINY)


@pytest.mark.parametrize("name", SOME)
def test_a_family_keeps_every_token(name: str, tmp_path: Path) -> None:
    found = check_conformance(Renderer.load(str(families.write(name, tmp_path / name))), quick=True)

    assert [check for check in found.checks if not check.passed] == []
    figures = ChainMap(*(dict(check.figures) for check in found.checks))
    assert (figures["prefix_breaks"], figures["forged_ids"]) == (0, 0)
    shares = [figures[f"trained_share_{noise}"] for noise in ("0", "0_2", "1", "10")]
    assert shares == [1, 1, 1, 1]
    assert {rule.name: rule.value for rule in found.rules}["family"] == (
        families.FAMILIES[name].family
    )


class WithoutBoundary(Renderer):
    """Omits the newline after a turn, as a well-known bug did."""

    def delta(
        self,
        last_id: int,
        calls: Sequence[ToolCall],
        *,
        results: Sequence[str],
        tools: Sequence[ToolSpec],
        open_reasoning: bool = False,
        messages: Sequence[str] = (),
    ) -> Rendered:
        right = super().delta(
            last_id,
            calls,
            results=results,
            tools=tools,
            open_reasoning=open_reasoning,
            messages=messages,
        )
        text = self.decode(right.ids).removeprefix("\n")
        return Rendered(self._encoding.encode([Scaffold(text)]), right.opens_reasoning)


def test_a_delta_without_its_boundary_is_detected() -> None:
    assert "deltas" in failed(subclass_of_tiny(WithoutBoundary))


class WithControls(Renderer):
    """Encodes tool results as if the template had written them."""

    def delta(
        self,
        last_id: int,
        calls: Sequence[ToolCall],
        *,
        results: Sequence[str],
        tools: Sequence[ToolSpec],
        open_reasoning: bool = False,
        messages: Sequence[str] = (),
    ) -> Rendered:
        right = super().delta(
            last_id,
            calls,
            results=results,
            tools=tools,
            open_reasoning=open_reasoning,
            messages=messages,
        )
        whole = self._encoding.encode([Scaffold(self.decode(right.ids))])
        return Rendered(whole, right.opens_reasoning)


def test_bodies_that_may_hold_control_tokens_are_detected() -> None:
    found = check_conformance(subclass_of_tiny(WithControls), quick=True)

    (check,) = (check for check in found.checks if not check.passed)
    assert check.name == "forged control tokens"
    assert check.figures["forged_ids"] > 0


class OfOneStop(Renderer):
    """Treats every turn as ended by the usual token, even one that was cut."""

    def delta(
        self,
        last_id: int,
        calls: Sequence[ToolCall],
        *,
        results: Sequence[str],
        tools: Sequence[ToolSpec],
        open_reasoning: bool = False,
        messages: Sequence[str] = (),
    ) -> Rendered:
        del last_id, open_reasoning, messages
        return super().delta(self.grammar.end_id, calls, results=results, tools=tools)


def test_a_cut_turn_that_is_not_closed_is_detected() -> None:
    assert failed(subclass_of_tiny(OfOneStop)) == {"cut turns"}


class Trimming(Renderer):
    """Strips white space from results, which this template does not."""

    def delta(
        self,
        last_id: int,
        calls: Sequence[ToolCall],
        *,
        results: Sequence[str],
        tools: Sequence[ToolSpec],
        open_reasoning: bool = False,
        messages: Sequence[str] = (),
    ) -> Rendered:
        trimmed = [result.strip() for result in results]
        return super().delta(
            last_id,
            calls,
            results=trimmed,
            tools=tools,
            open_reasoning=open_reasoning,
            messages=messages,
        )


def test_results_that_lose_their_white_space_are_detected() -> None:
    assert {"deltas", "bodies"} <= failed(subclass_of_tiny(Trimming))


class Backwards(Renderer):
    """Returns results of parallel calls in the wrong order."""

    def delta(
        self,
        last_id: int,
        calls: Sequence[ToolCall],
        *,
        results: Sequence[str],
        tools: Sequence[ToolSpec],
        open_reasoning: bool = False,
        messages: Sequence[str] = (),
    ) -> Rendered:
        return super().delta(
            last_id,
            calls,
            results=results[::-1],
            tools=tools,
            open_reasoning=open_reasoning,
            messages=messages,
        )


def test_results_out_of_order_are_detected() -> None:
    assert {"deltas", "order of results"} <= failed(subclass_of_tiny(Backwards))


def test_a_parser_of_another_format_is_detected(tmp_path: Path) -> None:
    folder = str(families.write("kimi_k2", tmp_path / "kimi"))

    renderer = Renderer.load(folder)
    renderer.parser = parser_for(ToolFormat.HERMES)
    assert "calls" in failed(renderer)


class _Trained(TokenLogSubject):
    """Records tokens of the harness as sampled."""

    def add_results(self, texts: Sequence[str]) -> Sequence[int]:
        before = len(self.log)
        added = super().add_results(texts)[before:]
        self.log.append_sampled(added, fake_logprobs(added), turn=99)
        return self.log.ids


def test_training_on_tokens_of_the_harness_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model, "TokenLogSubject", _Trained)
    found = {
        check.name: check for check in check_conformance(Renderer.load(TINY), quick=True).checks
    }

    assert not found["mask and logprobs"].passed
