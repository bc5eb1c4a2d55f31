"""Check that a model's tokens are exact: run every check on one renderer, and list its rules.

`check_conformance(Renderer.load("folder"))` is the entry point; `swe-rollout check-template` and
`scripts/conformance tokens` print its report. It needs neither weights nor a network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from swe_rollout.agent.dialect import Dialect
from swe_rollout.agent.renderer import Renderer
from swe_rollout.testing.tokens import checks, delta_checks
from swe_rollout.testing.tokens.model import TEMPLATE_ERRORS, ModelUnderTest, TokenCheck, one_line
from swe_rollout.testing.tokens.patterns import FIRST, TOOLS

__all__ = ["Conformance", "TemplateRule", "TokenCheck", "check_conformance", "template_rules"]

_CHECKS: Final[tuple[Callable[[ModelUnderTest], TokenCheck], ...]] = (
    checks.conversations,
    checks.prefix,
    checks.trained_share,
    checks.mask_and_logprobs,
    checks.text,
    checks.deltas,
    checks.control_tokens,
    checks.forged_control_tokens,
    checks.calls,
    checks.calls_in_other_spellings,
    checks.drafts,
    delta_checks.turn_ends,
    delta_checks.cut_turns,
    delta_checks.bodies,
    delta_checks.order_of_results,
    delta_checks.calls_in_deltas,
    delta_checks.short_turns,
)


@dataclass(frozen=True, slots=True)
class TemplateRule:
    """One property of a model's template or vocabulary, in words."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Conformance:
    """The rules found for a model, and the result of every check."""

    rules: tuple[TemplateRule, ...]
    checks: tuple[TokenCheck, ...]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)


def check_conformance(renderer: Renderer, *, quick: bool = False) -> Conformance:
    """Run every check. An error in the template fails only the check that raised it.

    `quick` runs random segmentations once instead of five times.
    """
    model = ModelUnderTest(renderer, quick=quick)
    return Conformance(template_rules(renderer), tuple(_run(check, model) for check in _CHECKS))


def _run(check: Callable[[ModelUnderTest], TokenCheck], model: ModelUnderTest) -> TokenCheck:
    try:
        return check(model)
    except TEMPLATE_ERRORS as error:
        return TokenCheck(check.__name__.replace("_", " "), passed=False, detail=one_line(error))


def template_rules(renderer: Renderer) -> tuple[TemplateRule, ...]:
    """Describe a model: its family, and the rules that hold for its tokens."""
    grammar, path = renderer.grammar, renderer.path
    family, dialect = grammar.family, grammar.dialect
    marks = f"{family.reasoning.opener} … {family.reasoning.closer}"
    opened = "; the prompt opens it" if _opens_reasoning(renderer) else ""
    dropped = "would drop that of earlier turns" if path.template_drops_reasoning else "keeps it"
    has_text = "JSON text" if dialect.arguments_as_text else "a mapping"
    return (
        TemplateRule("family", path.family),
        TemplateRule("calls", path.tool_format + _place(dialect)),
        TemplateRule("teaches", " or ".join(grammar.taught) or "no format of calls"),
        TemplateRule(
            "a turn ends in", ", ".join(renderer.decode([i]) for i in renderer.stop_token_ids)
        ),
        TemplateRule("behind it", _boundary(renderer)),
        TemplateRule("reasoning", marks + opened),
        TemplateRule("retention", f"{path.retention.value}; the template {dropped}"),
        TemplateRule(
            "earlier turns",
            "rewritten later; here they stay" if grammar.is_rewritten else "kept by the template",
        ),
        TemplateRule(
            "prompt",
            "written otherwise once a turn follows; here it stays"
            if dialect.moves_prompt
            else "kept by the template",
        ),
        TemplateRule("arguments", f"the template takes {has_text}"),
        TemplateRule("calls in a turn", "one" if dialect.one_call else "several"),
        TemplateRule("system message", _system(dialect)),
        TemplateRule(
            "tools",
            "described by the template"
            if dialect.writes_tools
            else "left out by the template; the words of the first messages tell of them",
        ),
        TemplateRule("the task is written", dialect.user.value),
        TemplateRule("results are written", dialect.result.value),
        TemplateRule("ids of calls", dialect.family.call_id),
        TemplateRule("control tokens", str(len(renderer.controls))),
        TemplateRule("vocabulary", str(renderer.vocab_size)),
        TemplateRule("fingerprint", renderer.fingerprint),
    )


def _place(dialect: Dialect) -> str:
    if dialect.calls_in_words is None:
        return ""
    role = "; results are a user message" if dialect.results_as_user else ""
    return f", in the words of a turn{role}"


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
