"""Token conformance: correct renderers pass, and each kind of broken one fails its own check."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rollout_dev import families
from swe_rollout.agent.encoding import Scaffold
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.renderer import Rendered, Renderer
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.testing.tokens import model
from swe_rollout.testing.tokens.conformance import check_conformance
from swe_rollout.testing.tokens.subjects import TokenLogSubject, fake_logprobs
from swe_rollout.types.turn import ToolCall

TINY = str(tokenizer_path())


def failed(renderer: Renderer) -> set[str]:
    found = check_conformance(renderer, quick=True).checks
    return {check.name for check in found if not check.passed}


@pytest.mark.parametrize("name", families.FAMILIES)
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


def without_boundary(renderer: Renderer, right: Rendered) -> Rendered:
    """Omits the newline after a turn, as a well-known bug did."""
    text = renderer.decode(right.ids).removeprefix("\n")
    return Rendered(renderer._encoding.encode([Scaffold(text)]), right.opens_reasoning)


def with_controls(renderer: Renderer, right: Rendered) -> Rendered:
    """Encodes tool results as if the template had written them."""
    whole = renderer._encoding.encode([Scaffold(renderer.decode(right.ids))])
    return Rendered(whole, right.opens_reasoning)


Given = dict[str, Any]
BROKEN: dict[str, tuple[Callable[[Renderer, int, Given], Rendered], set[str]]] = {
    "no boundary": (
        lambda own, last, given: without_boundary(own, Renderer.delta(own, last, **given)),
        {"deltas"},
    ),
    "results with control tokens": (
        lambda own, last, given: with_controls(own, Renderer.delta(own, last, **given)),
        {"forged control tokens"},
    ),
    "a cut turn is not closed": (
        lambda own, _, given: Renderer.delta(
            own, own.grammar.end_id, **given | {"open_reasoning": False}
        ),
        {"cut turns"},
    ),
    "results are stripped": (
        lambda own, last, given: Renderer.delta(
            own, last, **given | {"results": [each.strip() for each in given["results"]]}
        ),
        {"deltas", "bodies"},
    ),
    "results in the wrong order": (
        lambda own, last, given: Renderer.delta(
            own, last, **given | {"results": given["results"][::-1]}
        ),
        {"deltas", "order of results"},
    ),
}


@pytest.mark.parametrize("bug", BROKEN)
def test_a_renderer_with_a_bug_fails_its_checks(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = Renderer.load(TINY)
    delta, checks = BROKEN[bug]

    def broken(last_id: int, calls: Sequence[ToolCall], **given: object) -> Rendered:
        return delta(renderer, last_id, {"calls": calls, **given})

    monkeypatch.setattr(renderer, "delta", broken)
    found = failed(renderer)
    assert checks <= found
    assert len(found) <= len(checks) + 4, "it would not tell what is wrong"


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
