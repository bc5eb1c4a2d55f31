"""What must hold of a chat template before its tokens can be exact, tried out when it is loaded.

No family is taken on trust: the rule for deltas is held against the template's own rendering of
whole conversations, and a template that differs is refused with what differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jinja2

from swe_rollout.agent.encoding import Scaffold
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Reasoning
from swe_rollout.agent.template import Bodies, assistant_message, result_messages
from swe_rollout.agent.tools.base import Kind, Parameter, ToolSpec
from swe_rollout.errors import InternalError, PrerequisiteError
from swe_rollout.tool_format import ToolFormat
from swe_rollout.trajectory import CallStatus, ToolCall

if TYPE_CHECKING:
    from swe_rollout.agent.encoding import Encoding
    from swe_rollout.agent.template import ChatTemplate

_TOOL = ToolSpec(
    "probe_tool",
    "Looks something up.",
    (
        Parameter("path", "Where.", required=True),
        Parameter("count", "How much.", Kind.INTEGER),
    ),
)
_HISTORY: tuple[dict[str, object], ...] = (
    {"role": "system", "content": "You fix code."},
    {"role": "user", "content": 'Fix "C:\\x":\n\tsoon.'},
)
# Quotes, a backslash and lines, here and above: a template that escapes them would show.
_RESULTS = ('first "line"\n\tand C:\\path', "{'ä': 1}")
_SAID = "Let me look."


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How the policy's turn ends: by one token, and what the template writes behind it."""

    token_id: int
    text: str
    boundary: str
    """For ChatML a newline, which the policy does not sample."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """What a template turned out to be."""

    turn_end: TurnEnd
    opens_thinking: bool
    """Whether the template begins the policy's turn inside the reasoning."""
    tool_format: ToolFormat | None
    """None when it writes calls in no known form."""


def probe(template: ChatTemplate, encoding: Encoding) -> Grammar:
    """The grammar of a template; raises PrerequisiteError that names what can't be kept exact."""
    try:
        end = _turn_end(template, encoding)
        _check_prompt(template)
        written = _check_deltas(template, end)
        return Grammar(end, _opens_thinking(template), _tool_format(written, encoding))
    except (jinja2.TemplateError, ValueError, InternalError) as error:
        raise _refusal(f"{type(error).__name__}: {error}") from error


def _turn_end(template: ChatTemplate, encoding: Encoding) -> TurnEnd:
    turn: dict[str, object] = {"role": "assistant", "content": _SAID}
    text = template.render([*_HISTORY, turn], (), prompted=False)
    rest = text.rpartition(_SAID)[2]
    ids = encoding.encode([Scaffold(rest)])
    if not ids or ids[0] not in encoding.controls:
        raise _refusal(f"a turn ends in {rest!r}, which does not begin with a control token")
    control = encoding.controls[ids[0]]
    return TurnEnd(ids[0], control, rest.lstrip().removeprefix(control))


def _opens_thinking(template: ChatTemplate) -> bool:
    history = list(_HISTORY)
    before = template.render(history, (_TOOL,), prompted=False)
    begun = template.render(history, (_TOOL,), prompted=True).removeprefix(before)
    return (
        Reasoning().opener in begun
        and Reasoning().closer not in begun.rpartition(Reasoning().opener)[2]
    )


def _check_prompt(template: ChatTemplate) -> None:
    system, user = _HISTORY
    whole = template.render([system, user], (_TOOL,), prompted=True)
    if _TOOL.name not in whole:
        raise _refusal("it does not tell the model about its tools")
    bodies = Bodies([str(user["content"])])
    stand_in = user | {"content": bodies.stand_ins[0]}
    parts = bodies.cut(template.render([system, stand_in], (_TOOL,), prompted=True))
    if "".join(part.text for part in parts) != whole:
        raise _refusal("it changes the text of a user message")


def _check_deltas(template: ChatTemplate, end: TurnEnd) -> str:
    """Try two rounds, the second with parallel calls; the text of the first turn."""
    one, two = _call("a b.py", 3), _call("c.py", 40)
    history = list(_HISTORY)
    first = _check_round(template, end, history, (one,))
    history += [assistant_message(_SAID, (one,)), *result_messages((one,), _RESULTS[:1])]
    _check_round(template, end, history, (one, two))
    return first


def _check_round(
    template: ChatTemplate,
    end: TurnEnd,
    history: list[dict[str, object]],
    calls: tuple[ToolCall, ...],
) -> str:
    """Hold one round's delta against the template's rendering of the whole; the turn it wrote."""
    results = _RESULTS[: len(calls)]
    turn = [assistant_message(_SAID, calls), *result_messages(calls, results)]
    before = template.render(history, (_TOOL,), prompted=False)
    whole = template.render([*history, *turn], (_TOOL,), prompted=True)
    delta = end.text + end.boundary + _added(template, calls, results)
    if not whole.startswith(before):
        raise _refusal("it rewrites earlier messages when a turn follows them")
    if not whole.endswith(delta):
        found = whole[len(before) :]
        raise _refusal(f"what follows a turn should be {delta!r}, but it renders {found!r}")
    return whole[len(before) : -len(delta)]


def _added(template: ChatTemplate, calls: tuple[ToolCall, ...], results: tuple[str, ...]) -> str:
    """A delta as it is made later on: results are put in behind the template's back."""
    bodies = Bodies(results)
    text = template.added(calls, bodies.stand_ins, (_TOOL,))
    return "".join(part.text for part in bodies.cut(text))


def _call(path: str, count: int) -> ToolCall:
    return ToolCall(CallStatus.OK, "", _TOOL.name, {"path": path, "count": count})


def _tool_format(written: str, encoding: Encoding) -> ToolFormat | None:
    """The form whose parser reads the template's own call back as it was."""
    sampled = encoding.sampled(encoding.encode([Scaffold(written)]))
    for tool_format in (ToolFormat.HERMES, ToolFormat.QWEN_XML):
        calls = parser_for(tool_format).parse(sampled, tools=(_TOOL,), reasoning=Reasoning())
        if [call.arguments for call in calls] == [_call("a b.py", 3).arguments]:
            return tool_format
    return None


def _refusal(why: str) -> PrerequisiteError:
    return PrerequisiteError(
        "the tokens of this model's chat template can't be kept exact",
        why=why,
        fix="use a model with a ChatML template that has tools (Qwen2.5, Qwen3, Qwen3-Coder), or "
        "set spec.policy.tokenizer to a folder with such a template",
    )
