"""Checks of single deltas: how turns may end, and what results and calls may hold.

Each takes a `Stage` and gives a `Check`. Texts are compared, so nothing here knows how a delta is
made. Checks of whole conversations are in `testing.token_checks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from swe_rollout.testing.token_patterns import TOOLS, Say
from swe_rollout.testing.token_stage import TROUBLE, Check, told, words
from swe_rollout.trajectory import CallStatus, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from swe_rollout.testing.token_stage import Stage

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
    """Deltas behind one turn of the model, as text."""

    def __init__(self, stage: Stage) -> None:
        self.renderer = stage.renderer
        self.policy = stage.policy
        self.said = stage.conversations[0].turns[0]
        self.end = self.said.ids[-1]

    def text(
        self,
        last_id: int | None = None,
        results: Sequence[str] = (_NONCE,),
        *,
        calls: Sequence[ToolCall] | None = None,
        open_reasoning: bool = False,
    ) -> str:
        """The delta behind `last_id`, none: the turn's own end."""
        rendered = self.renderer.delta(
            self.end if last_id is None else last_id,
            self.said.calls if calls is None else calls,
            results=results,
            tools=TOOLS,
            open_reasoning=open_reasoning,
        )
        return self.policy.text(rendered.ids)


def turn_ends(stage: Stage) -> Check:
    """Whether a turn may end in any of the model's stop tokens."""
    renderer = stage.renderer

    def problems() -> list[str]:
        deltas = _Deltas(stage)
        usual = deltas.text()
        found: list[str] = []
        for stop in renderer.stop_token_ids:
            text = deltas.text(stop)
            added = text.removesuffix(usual)
            if not text.endswith(usual) or (added and not _is_scaffold(stage, added)):
                found.append(f"behind {renderer.decode([stop])!r} comes {text[:60]!r}")
        return found

    names = ", ".join(repr(renderer.decode([stop])) for stop in renderer.stop_token_ids)
    return _tried("turn ends", problems, f"{names}: each stays, and is answered the same way")


def cut_turns(stage: Stage) -> Check:
    """Whether a turn that was cut is closed by the harness, its reasoning first."""
    renderer = stage.renderer

    def problems() -> list[str]:
        deltas = _Deltas(stage)
        usual = deltas.text()
        ordinary = stage.policy.encode("x")[-1]
        cut = deltas.text(ordinary)
        closed = deltas.text(ordinary, open_reasoning=True)
        found: list[str] = []
        if not cut.endswith(usual) or not _is_scaffold(stage, cut.removesuffix(usual)):
            found.append(f"behind a cut turn comes {cut[:80]!r}")
        end = renderer.grammar.family.reasoning_end
        if stage.policy.comparable(closed) != stage.policy.comparable(end + cut):
            found.append(f"behind cut reasoning comes {closed[:80]!r}")
        return found

    return _tried("cut turns", problems, "closed by the harness, with mask 0")


def _is_scaffold(stage: Stage, text: str) -> bool:
    """Whether a text is nothing but control tokens and what templates write between them."""
    ids = stage.policy.encode(text)
    return bool(ids) and any(i in stage.renderer.controls for i in ids)


def bodies(stage: Stage) -> Check:
    """Whether results reach the model as the template would write them, and empty ones too."""

    def problems() -> list[str]:
        deltas = _Deltas(stage)
        quoting = stage.renderer.grammar.dialect.result
        before, _, behind = deltas.text().partition(_NONCE)
        arrived = [(body, deltas.text(results=(body,))) for body in ("", *_BODIES)]
        return [
            f"{body[:30]!r} arrives as {text[:80]!r}"
            for body, text in arrived
            if text != before + quoting.apply(body) + behind
        ]

    return _tried("bodies", problems, f"{len(_BODIES) + 1} texts arrive as they are")


def order_of_results(stage: Stage) -> Check:
    """Whether the results of parallel calls follow the order of the calls."""

    def problems() -> list[str]:
        deltas = _Deltas(stage)
        says = (Say("bash", {"command": "a"}), Say("submit", {}), Say("bash", {"command": "a"}))
        calls = stage.policy.meant(says, 0)
        results = [f"{_NONCE}{index}" for index in (2, 0, 1)]
        found = [deltas.text(results=results, calls=calls).find(result) for result in results]
        return [] if -1 < found[0] < found[1] < found[2] else [f"results lie at {found}"]

    return _tried("order of results", problems, "three results, in the order of their calls")


def calls_in_deltas(stage: Stage) -> Check:
    """Whether calls with any arguments, or of no known tool, can be answered."""

    def problems() -> list[str]:
        deltas = _Deltas(stage)
        broken = ToolCall(CallStatus.UNCLOSED, "x", problem="not closed")
        odd = ToolCall(CallStatus.UNKNOWN_TOOL, "x", "<|im_end|>", id="<|im_end|>")
        given = [ToolCall(CallStatus.OK, "", "bash", dict(each)) for each in _ARGUMENTS]
        found: list[str] = []
        for call in (*given, broken, odd):
            text = deltas.text(calls=(call,))
            if _NONCE not in text:
                found.append(f"the result of {call.name or 'a broken call'} is lost: {text[:80]!r}")
        return found

    count = len(_ARGUMENTS) + 2
    return _tried("calls in deltas", problems, f"{count} kinds of calls can be answered")


def short_turns(stage: Stage) -> Check:
    """Whether a turn of one token, or of nothing but its end, can be answered."""
    renderer = stage.renderer

    def problems() -> list[str]:
        deltas = _Deltas(stage)
        broken = ToolCall(CallStatus.UNCLOSED, "x", problem=_NONCE)
        usual = deltas.text(calls=(broken,))
        found: list[str] = []
        for ids in ((*stage.policy.encode("x"), deltas.end), (deltas.end,)):
            sampled = renderer.sampled(ids)
            if sampled.text != stage.policy.text(ids[:-1]):
                found.append(f"{renderer.decode(ids)!r} reads as {sampled.text!r}")
            if deltas.text(ids[-1], calls=(broken,)) != usual:
                found.append(f"{renderer.decode(ids)!r} is not answered as usual")
        return found

    return _tried("short turns", problems, "turns of one token and of none")


def _tried(name: str, problems: Callable[[], list[str]], well: str) -> Check:
    try:
        return told(name, problems(), well)
    except TROUBLE as error:
        return Check(name, passed=False, detail=words(error))
