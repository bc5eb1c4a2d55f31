"""Checks of single deltas: how turns may end, and what results and calls may contain.

Each takes a `ModelUnderTest` and returns a `TokenCheck`. They compare text, so they do not depend
on how a delta is built. Checks of whole conversations are in `testing.tokens.checks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from swe_rollout.testing.tokens.model import ModelUnderTest, TokenCheck, check_result
from swe_rollout.testing.tokens.patterns import TOOLS, ScriptedCall
from swe_rollout.types.turn import CallStatus, ToolCall

_NONCE: Final = "Zq7Body"
_BODIES: Final = (
    "  leading and trailing  ",
    "\n\nlines\n\n",
    "\ttab\r\nreturn",
    "🙂 👩‍👩‍👧 日本語 naïve",
    "quotes \" ' ` and \\ back\\slashes \\n",
    '{"json": [1, null, "x"]}',
    "{{ jinja }} {% raw %} {# no #}",
    "%s {0} $HOME \x00 \x1b[31m",
    "a" * 5000,
    ".",
)
_ARGUMENTS: Final[tuple[dict[str, object], ...]] = (
    {},
    {"command": ""},
    {"command": " a\n\n"},
    {"flag": True, "other": False},
    {"nothing": None},
    {"n": 3, "x": 2.5, "big": 2**53},
    {"list": [1, "a", None], "map": {"deep": {"er": [True]}}},
    {"ключ": "значение 🙂"},
    {"quote": "\"\\'<>&"},
)


class _Deltas:
    """Deltas after one turn of the model, as text."""

    def __init__(self, model: ModelUnderTest) -> None:
        self.renderer = model.renderer
        self.policy = model.policy
        self.turn = model.conversations[0].turns[0]
        self.end = self.turn.ids[-1]

    def text(
        self,
        last_id: int | None = None,
        results: Sequence[str] = (_NONCE,),
        *,
        calls: Sequence[ToolCall] | None = None,
        open_reasoning: bool = False,
    ) -> str:
        """Return the delta after `last_id`, by default the turn's own end."""
        rendered = self.renderer.delta(
            self.end if last_id is None else last_id,
            self.turn.calls if calls is None else calls,
            results=results,
            tools=TOOLS,
            open_reasoning=open_reasoning,
        )
        return self.policy.text(rendered.ids)


def turn_ends(model: ModelUnderTest) -> TokenCheck:
    """Check that a turn may end in any of the model's stop tokens."""
    renderer = model.renderer
    deltas = _Deltas(model)
    usual = deltas.text()
    problems: list[str] = []
    for stop in renderer.stop_token_ids:
        text = deltas.text(stop)
        added = text.removesuffix(usual)
        if not text.endswith(usual) or (added and not _is_scaffold(model, added)):
            problems.append(f"after {renderer.decode([stop])!r} comes {text[:60]!r}")
    names = ", ".join(repr(renderer.decode([stop])) for stop in renderer.stop_token_ids)
    return check_result("turn ends", problems, f"{names}: each stays, with the same delta after it")


def cut_turns(model: ModelUnderTest) -> TokenCheck:
    """Check that the harness closes a turn that was cut, its reasoning first."""
    renderer = model.renderer
    deltas = _Deltas(model)
    usual = deltas.text()
    ordinary = model.policy.encode("x")[-1]
    cut = deltas.text(ordinary)
    closed = deltas.text(ordinary, open_reasoning=True)
    problems: list[str] = []
    if not cut.endswith(usual) or not _is_scaffold(model, cut.removesuffix(usual)):
        problems.append(f"after a cut turn comes {cut[:80]!r}")
    end = renderer.grammar.family.reasoning_end
    if model.policy.comparable(closed) != model.policy.comparable(end + cut):
        problems.append(f"after cut reasoning comes {closed[:80]!r}")
    return check_result("cut turns", problems, "closed by the harness, with mask 0")


def _is_scaffold(model: ModelUnderTest, text: str) -> bool:
    """Return whether a text contains control tokens, so that the template must have written it."""
    ids = model.policy.encode(text)
    return any(i in model.renderer.controls for i in ids)


def bodies(model: ModelUnderTest) -> TokenCheck:
    """Check that results, even empty ones, reach the model as the template would write them."""
    deltas = _Deltas(model)
    quoting = model.renderer.grammar.dialect.result
    before, _, after = deltas.text().partition(_NONCE)
    arrived = [(body, deltas.text(results=(body,))) for body in ("", *_BODIES)]
    problems = [
        f"{body[:30]!r} arrives as {text[:80]!r}"
        for body, text in arrived
        if text != before + quoting.apply(body) + after
    ]
    return check_result("bodies", problems, f"{len(_BODIES) + 1} texts arrive unchanged")


def order_of_results(model: ModelUnderTest) -> TokenCheck:
    """Check that the results of parallel calls follow the order of the calls."""
    deltas = _Deltas(model)
    scripted = (
        ScriptedCall("bash", {"command": "a"}),
        ScriptedCall("submit", {}),
        ScriptedCall("bash", {"command": "a"}),
    )
    calls = model.policy.intended_calls(scripted, 0)
    results = [f"{_NONCE}{index}" for index in (2, 0, 1)]
    found = [deltas.text(results=results, calls=calls).find(result) for result in results]
    problems = [] if -1 < found[0] < found[1] < found[2] else [f"results are at offsets {found}"]
    return check_result("order of results", problems, "three results, in the order of their calls")


def calls_in_deltas(model: ModelUnderTest) -> TokenCheck:
    """Check that calls with any arguments, or of an unknown tool, can get a result."""
    deltas = _Deltas(model)
    broken = ToolCall(CallStatus.UNCLOSED, "x", problem="not closed")
    odd = ToolCall(CallStatus.UNKNOWN_TOOL, "x", "<|im_end|>", id="<|im_end|>")
    given = [ToolCall(CallStatus.OK, "", "bash", dict(each)) for each in _ARGUMENTS]
    problems: list[str] = []
    for call in (*given, broken, odd):
        text = deltas.text(calls=(call,))
        if _NONCE not in text:
            problems.append(f"the result of {call.name or 'a broken call'} is lost: {text[:80]!r}")
    count = len(_ARGUMENTS) + 2
    return check_result("calls in deltas", problems, f"{count} kinds of calls get their results")


def short_turns(model: ModelUnderTest) -> TokenCheck:
    """Check that a turn of one token, or of nothing but its end, gets a delta."""
    renderer = model.renderer
    deltas = _Deltas(model)
    broken = ToolCall(CallStatus.UNCLOSED, "x", problem=_NONCE)
    usual = deltas.text(calls=(broken,))
    problems: list[str] = []
    for ids in ((*model.policy.encode("x"), deltas.end), (deltas.end,)):
        sampled = renderer.sampled(ids)
        if sampled.text != model.policy.text(ids[:-1]):
            problems.append(f"{renderer.decode(ids)!r} decodes to {sampled.text!r}")
        if deltas.text(ids[-1], calls=(broken,)) != usual:
            problems.append(f"{renderer.decode(ids)!r} gets an unusual delta")
    return check_result("short turns", problems, "turns of one token and of none")
