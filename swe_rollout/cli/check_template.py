"""`check-template`: check that a model's tokens can be kept exact, without weights or network."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.options import Form, OutputFormat, option
from swe_rollout.cli.output import say, show_error, write_data, write_lines, write_table
from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.text.escaping import printable

if TYPE_CHECKING:
    from swe_rollout.testing.tokens.conformance import Conformance

TokenizerAddress = Annotated[
    str, typer.Argument(metavar="TOKENIZER", help="A folder with tokenizer.json, or a hub name.")
]
FormatChoice = Annotated[
    ToolFormat | None, option(help="Format of tool calls. Default: the detected one.")
]
TemplateKwargs = Annotated[
    str | None, option(metavar="JSON", help='Template arguments: {"enable_thinking": false}')
]
TemplateDate = Annotated[
    str | None,
    option(metavar="DATE", help="The date that the template is told, as spec.policy.templateDate."),
]
Quick = Annotated[bool, option("--quick", help="Run randomised checks once instead of five times.")]


def check_template(
    tokenizer: TokenizerAddress,
    *,
    tool_format: FormatChoice = None,
    template_kwargs: TemplateKwargs = None,
    template_date: TemplateDate = None,
    quick: Quick = False,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Check that a model's tokens can be kept exact: show its family and rules, and test them.

    Needs the tokenizer but no weights. Exit 1 when a check fails or the template is refused.

    swe-rollout check-template Qwen/Qwen3-8B

    swe-rollout check-template models/qwen3 --template-kwargs '{"enable_thinking": false}'
    """
    from swe_rollout.agent.renderer import Renderer
    from swe_rollout.agent.template_input import DEFAULT_DAY
    from swe_rollout.testing.tokens.conformance import check_conformance

    template_arguments = _parse_kwargs(template_kwargs)
    day = DEFAULT_DAY if template_date is None else _parse_date(template_date)
    try:
        renderer = Renderer.load(
            tokenizer,
            tool_format=tool_format,
            chat_template_kwargs=template_arguments,
            template_day=day,
        )
    except PrerequisiteError as error:
        if isinstance(error.__cause__, OSError):
            raise  # no tokenizer to check
        _show_refusal(tokenizer, error, output)
        raise typer.Exit(1) from error
    except Exception as error:
        # tokenizers raises nothing narrower for a file it can't read.
        why = f"{type(error).__name__}: {error}"
        _show_refusal(tokenizer, PrerequisiteError("the tokenizer can't be used", why=why), output)
        raise typer.Exit(1) from error
    found = check_conformance(renderer, quick=quick)
    _show(tokenizer, found, output)
    if not found.passed:
        raise typer.Exit(1)


def _parse_kwargs(text: str | None) -> dict[str, object]:
    fix = "give one JSON object, such as '{\"enable_thinking\": false}'"
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        raise UsageError("--template-kwargs is not JSON", why=str(error), fix=fix) from error
    if not isinstance(value, dict):
        raise UsageError("--template-kwargs is not a JSON object", fix=fix)
    return value


def _parse_date(text: str) -> date:
    try:
        # A plain date, as in a job; fromisoformat alone would take weeks too.
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise UsageError(f"--template-date {text!r} is no date", fix="write it as 2026-01-31")


def _show_refusal(tokenizer: str, error: PrerequisiteError, output: OutputFormat) -> None:
    if output.is_data:
        refused = {"what": error.what, "why": error.why, "fix": error.fix}
        found: dict[str, object] = {"refused": refused, "rules": {}, "checks": []}
        write_data({"tokenizer": tokenizer, "ok": False, **found}, output)
    else:
        show_error(error)


def _show(tokenizer: str, found: Conformance, output: OutputFormat) -> None:
    if output.is_data:
        rules = {rule.name: rule.value for rule in found.rules}
        checks = [asdict(check) for check in found.checks]
        shown = {"tokenizer": tokenizer, "ok": found.passed, "rules": rules, "checks": checks}
        write_data(shown, output)
        return
    write_table(("RULE", "FOUND"), [(rule.name, rule.value) for rule in found.rules])
    write_lines([""])
    write_table(
        ("CHECK", "RESULT", "DETAIL"),
        [(each.name, "pass" if each.passed else "FAIL", each.detail) for each in found.checks],
    )
    failed = [check for check in found.checks if not check.passed]
    write_lines(["", *(f"{check.name}: {printable(check.detail)}" for check in failed)])
    count = f"{len(failed)} of {len(found.checks)} checks failed"
    say(count if failed else "every token is kept exact")
