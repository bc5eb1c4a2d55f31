"""Whether a model's tokens are exact: all checks of one renderer, and what was found out about it.

`conform(Renderer.load("folder"))` is the whole of it; `swe-rollout check-template` and
`scripts/conformance/tokens.py` print what it gives. No weights, no network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from swe_rollout.testing import token_checks, token_delta_checks
from swe_rollout.testing.token_patterns import FIRST, TOOLS
from swe_rollout.testing.token_stage import TROUBLE, Check, Stage, words

if TYPE_CHECKING:
    from collections.abc import Callable

    from swe_rollout.agent.renderer import Renderer
    from swe_rollout.agent.template import Dialect

__all__ = ["Check", "Conformance", "Rule", "conform", "rules_of"]

_CHECKS: Final[tuple[Callable[[Stage], Check], ...]] = (
    token_checks.conversations,
    token_checks.prefix,
    token_checks.trained_share,
    token_checks.mask_and_logprobs,
    token_checks.text,
    token_checks.deltas,
    token_checks.control_tokens,
    token_checks.forged_control_tokens,
    token_checks.calls,
    token_checks.calls_in_other_spellings,
    token_checks.drafts,
    token_delta_checks.turn_ends,
    token_delta_checks.cut_turns,
    token_delta_checks.bodies,
    token_delta_checks.order_of_results,
    token_delta_checks.calls_in_deltas,
    token_delta_checks.short_turns,
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that was found out about a model, in words."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Conformance:
    """What was found out, and what held."""

    rules: tuple[Rule, ...]
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check did."""
        return all(check.passed for check in self.checks)

    def figure(self, name: str) -> float | None:
        """A figure of any of the checks; none where that check gave none."""
        return next((c.figures[name] for c in self.checks if name in c.figures), None)


def conform(renderer: Renderer, *, quick: bool = False) -> Conformance:
    """Run every check; what a template raises fails the check and stops no other.

    `quick`: one repetition of what is random, not five.
    """
    stage = Stage(renderer, quick=quick)
    return Conformance(rules_of(renderer), tuple(_run(check, stage) for check in _CHECKS))


def _run(check: Callable[[Stage], Check], stage: Stage) -> Check:
    try:
        return check(stage)
    except TROUBLE as error:
        return Check(check.__name__.replace("_", " "), passed=False, detail=words(error))


def rules_of(renderer: Renderer) -> tuple[Rule, ...]:
    """The family of a model, and the rules that hold for its tokens."""
    grammar, path = renderer.grammar, renderer.path
    family, dialect = grammar.family, grammar.dialect
    marks = f"{family.reasoning.opener} … {family.reasoning.closer}"
    opened = "; the prompt opens it" if _opens_reasoning(renderer) else ""
    dropped = "would drop that of earlier turns" if path.template_drops_reasoning else "keeps it"
    has_text = "JSON text" if dialect.arguments_as_text else "a mapping"
    return (
        Rule("family", path.family),
        Rule("calls", path.tool_format),
        Rule("a turn ends in", ", ".join(renderer.decode([i]) for i in renderer.stop_token_ids)),
        Rule("behind it", _boundary(renderer)),
        Rule("reasoning", marks + opened),
        Rule("retention", f"{path.retention.value}; the template {dropped}"),
        Rule("arguments", f"the template takes {has_text}"),
        Rule("calls in a turn", "one" if dialect.one_call else "several"),
        Rule("system message", _system(dialect)),
        Rule("tools", "told by the template" if dialect.tells_tools else "told by us"),
        Rule("the task is written", dialect.user.value),
        Rule("results are written", dialect.result.value),
        Rule("ids of calls", dialect.call_id),
        Rule("control tokens", str(len(renderer.controls))),
        Rule("vocabulary", str(renderer.vocab_size)),
        Rule("fingerprint", renderer.fingerprint),
    )


def _boundary(renderer: Renderer) -> str:
    family = renderer.grammar.family
    if family.end_is_header:
        return f"nothing: {family.end} is the header of what follows"
    return repr(family.after) if family.after else "nothing"


def _system(dialect: Dialect) -> str:
    if not dialect.has_system:
        return "refused by the template"
    left_out = "; the template leaves it out once a turn follows, here it stays"
    return "taken" + (left_out if dialect.moves_system else "")


def _opens_reasoning(renderer: Renderer) -> bool:
    first = FIRST if renderer.grammar.dialect.has_system else FIRST[1:]
    return renderer.prompt(first, TOOLS).opens_reasoning
