"""What other systems' tests say of branches and of tokens that are captured, as cases of our own.

`gateway_cases.yaml` has them. A case plays its conversations and compares the branches, the reasons
for them and what is refused; or it names the test of ours that holds it, or says why there is no
such part here. Each case of theirs is in one of ours; `ours` says why we decide otherwise.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec
import yaml

from rollout_dev.conformance.gateway_scene import RENDERER, Speaking, conversations, problems
from rollout_dev.report import Report, Row
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.errors import SweRolloutError
from swe_rollout.gateway.conversations import Conversations
from swe_rollout.gateway.dialects.base import Item, Role, conversation
from swe_rollout.gateway.nodes import EndedError
from swe_rollout.gateway.values import Answer, BadRequestError, Call, Request
from swe_rollout.spec.limits import Limits
from swe_rollout.tokens.branch import Branch
from swe_rollout.types.turn import FinishReason, Generation

ROOT: Final = Path(__file__).parents[3]
THEIRS: Final = {"slime": 35, "nemo": 67}
"""The cases of `test_trajectory_manager_branching` and of `test_token_id_capture`."""
_CALL: Final = '<tool_call>\n{"name": "bash", "arguments": {"command": "WHAT"}}\n</tool_call>'
_SHOWN: Final = (
    (re.escape(_CALL).replace("WHAT", "(.*?)"), r"call \1"),
    (r"<\|im_start\|>(\w+)\n", r" \1: "),
    (r"<\|im_end\|>|</?tool_response>|\s+", " "),
    (r" (?=\])|(?<=\[) ", ""),
)


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One behaviour."""

    case: str
    like: dict[str, list[str]] = {}
    """The cases of theirs, by their names."""
    says: list[str] = []
    """What the policy samples in turn."""
    asks: list[str] = []
    """Conversations: `ROLE TEXT | …`, where `answer N` is the answer to the request N."""
    branches: list[str] = []
    """What is in the end in each, with [what is trained on]."""
    reasons: list[str] = []
    refused: list[str] = []
    held_by: str = ""
    """The test of ours that holds it."""
    ours: str = ""
    """Why we decide otherwise."""
    limits: dict[str, int] = {}


class _Odd(Speaking):
    """An engine that also answers as none should."""

    async def generate(self, request: GenerateRequest) -> Generation:
        match self.says():
            case "(nothing)":
                return Generation((), (), FinishReason.STOP, len(request.input_ids))
            case "(one log-probability)":
                return Generation((7, 8), (-1.0,), FinishReason.STOP, len(request.input_ids))
            case text:
                return await Speaking(lambda: text, self.calls).generate(request)


def cases() -> list[Case]:
    """Return all cases."""
    text = Path(__file__).with_suffix(".yaml").read_text("utf-8")
    return msgspec.convert(yaml.safe_load(text), list[Case])


async def played() -> Report:
    """Play all cases."""
    rows, notes, theirs = list[Row](), list[str](), set[tuple[str, str]]()
    for case in cases():
        wrong = [f"{case.case}: {each}" async for each in _wrong(case)]
        notes += wrong
        theirs |= {(name, each) for name, like in case.like.items() for each in like}
        like = "; ".join(f"{name}: {', '.join(each)}" for name, each in case.like.items())
        labels = {"like": like, "ours": case.ours or "the same", "held_by": case.held_by}
        figures = {"played": float(bool(case.asks)), "wrong": float(len(wrong))}
        rows.append(Row(case.case, figures, labels))
    counted = Counter(name for name, _ in theirs)
    if counted != THEIRS:
        notes.append(f"there are cases like {dict(counted)} of theirs, not {THEIRS}")
    figures = {f"like_{name}": float(count) for name, count in counted.items()}
    figures["played"] = sum(row.figures["played"] for row in rows)
    figures["held_by_tests"] = float(sum(bool(row.labels["held_by"]) for row in rows))
    rows.append(Row("all cases", {"cases": float(len(rows)), **figures}))
    return Report("cases", tuple(rows), ok=not notes, notes=tuple(notes))


async def _wrong(case: Case) -> AsyncIterator[str]:
    """Yield what is otherwise than the case says."""
    path, _, name = case.held_by.partition("::")
    if path and f"def {name}(" not in (ROOT / path).read_text("utf-8"):
        yield f"there is no test {case.held_by}"
    if not case.asks:
        if not (case.held_by or case.ours):
            yield "nothing shows it"
        return
    texts = iter([re.sub("^call (.*)$", _called, each, flags=re.MULTILINE) for each in case.says])
    engine = _Odd(partial(next, texts, "More."))
    talk = conversations(engine, Limits.model_validate(case.limits))
    refused = [each async for each in _asked(case, talk)]
    seen = {
        "branches": [_shown(branch) for branch in talk.branches()],
        "reasons": [f"{note.branch}: {note.reason}" for note in talk.state.differences],
        "refused": refused,
    }
    await talk.close()
    for name, wanted in (
        ("branches", case.branches),
        ("reasons", case.reasons),
        ("refused", case.refused),
    ):
        if seen[name] != wanted:
            yield f"{name} are {json.dumps(seen[name], ensure_ascii=False)}"
    for problem in problems(talk, engine):
        yield problem


async def _asked(case: Case, talk: Conversations) -> AsyncIterator[str]:
    """Ask all that a case asks; yield what is refused."""
    answers: dict[int, Answer] = {}
    for number, asked in enumerate(case.asks, start=1):
        try:
            first, turns = conversation(_items(asked, answers))
            answers[number] = await talk.answer(Request(first, turns))
        except (BadRequestError, EndedError, SweRolloutError) as error:
            yield f"{number}: {error}"


def _items(asked: str, answers: Mapping[int, Answer]) -> Iterator[Item]:
    waiting: list[Call] = []
    for each in filter(None, asked.split(" | ")):
        kind, _, text = each.partition(" ")
        text = text.replace("␣", " ")
        match kind:
            case "answer":
                answer = answers[int(text)]
                waiting += answer.calls
                yield Item(Role.POLICY, answer.text, answer.calls)
            case "call":
                waiting.append(Call(f"own-{len(waiting)}", "bash", json.dumps({"command": text})))
                yield Item(Role.POLICY, calls=(waiting[-1],))
            case "result":
                yield Item(Role.TOOL, text, call_id=waiting.pop(0).id if waiting else "")
            case _:
                yield Item(Role(kind), text)


def _called(match: re.Match[str]) -> str:
    return _CALL.replace("WHAT", match[1])


def _shown(branch: Branch) -> str:
    """Return a branch as text, with [what is trained on]."""
    runs = groupby(zip(branch.loss_mask, branch.token_ids, strict=True), key=lambda pair: pair[0])
    decoded = [(mask, RENDERER.decode([token for _, token in run])) for mask, run in runs]
    text = "".join(f"[{each}]" if mask else each for mask, each in decoded)
    for pattern, shown in _SHOWN:
        text = re.sub(pattern, shown, text)
    return " ".join(text.split())
