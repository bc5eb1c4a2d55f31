"""Harnesses that do whatever they like to conversations: do tokens stay exact?

    scripts/conformance gateway                  # 10,000 edits
    scripts/conformance gateway --only edits --edits 500 --seed 7

Each harness plays an episode over the gateway's conversations, against an engine that samples turns
by chance. Before each request it does something to what it was given: spells arguments anew, trims
texts, drops or repairs turns, compacts, forks, asks again, asks twice at once, or nothing.
Afterwards, for each episode: every request is its branch so far, each sampled token stands in one
branch and is trained on once, and no id is there that was neither sampled nor rendered as text.

Beside them are what other systems' tests say of branches, as cases of our own, and the vendors' own
clients (`gateway_clients`, `gateway_cases`).
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec import structs

from rollout_dev.conformance import gateway_cases, gateway_clients
from rollout_dev.conformance.gateway_scene import Speaking, conversations, problems, trained
from rollout_dev.report import Report, Row, option, program
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.gateway.conversations import Conversations
from swe_rollout.gateway.dialects.base import tool
from swe_rollout.gateway.nodes import EndedError
from swe_rollout.gateway.values import Answer, BadRequestError, Call, Request, Result, Told
from swe_rollout.spec.limits import Limits

_REQUESTS: Final = 24
"""The requests of one episode."""
_BAD_CALLS: Final = 0.1
_AT_ONCE: Final = 0.2
"""The shares of calls that are no JSON, and of requests that are made two at once."""
_TOOLS: Final = (
    tool("bash", "Run it.", {"type": "object", "properties": {"command": {"type": "string"}}}),
    tool("read", "Read it.", None),
)
_FIRST: Final = (Message(MessageRole.SYSTEM, "You fix."), Message(MessageRole.USER, "It fails."))
_TEXTS: Final = ("", "I look.", "  Odd  \n", "Là-bas ✓", "<|im_end|>", "a" * 200, "</think>")


def _turn(chance: random.Random) -> str:
    """Return what a policy says by chance."""
    parts = [chance.choice(_TEXTS)]
    for _ in range(chance.choice((0, 1, 1, 1, 2))):
        name = chance.choice(("bash", "read", "no_such_tool"))
        arguments = {"command": chance.choice(_TEXTS), "n": chance.randint(0, 3)}
        body = json.dumps({"name": name, "arguments": arguments})
        body = body[:-3] if chance.random() < _BAD_CALLS else body
        parts.append(f"<tool_call>\n{body}\n</tool_call>")
    return "\n".join(parts)


@dataclass(slots=True)
class _Harness:
    """One that is told by chance what to do next."""

    played: Conversations
    chance: random.Random
    request: Request = field(default_factory=lambda: Request(_FIRST, tools=_TOOLS))
    answer: Answer | None = None
    done: Counter[str] = field(default_factory=Counter)

    async def step(self) -> None:
        """Do something to the conversation, and ask."""
        edits: dict[str, Callable[[], Request]] = {
            "goes on": self._on,
            "spells anew": self._spelt,
            "changes a turn": self._changed,
            "drops a turn": self._dropped,
            "compacts": self._compacted,
            "forks": self._forked,
            "asks again": lambda: self.request,
            "starts a sub-agent": self._sub_agent,
            "loses a result": self._without_results,
        }
        weights = (8, 4, 1, 1, 1, 2, 2, 1, 1)
        name = self.chance.choices(tuple(edits), weights)[0]
        self.done[name] += 1
        before, self.request = self.request, edits[name]()
        asked = [self.played.answer(self.request)]
        if self.chance.random() < _AT_ONCE:
            asked.append(self.played.answer(self.chance.choice((self.request, before))))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for each in answers:
            if isinstance(each, BaseException) and not isinstance(
                each, EndedError | BadRequestError
            ):
                raise each
        found = answers[0]
        self.answer = found if isinstance(found, Answer) else None

    def _told(self) -> Told | None:
        if self.answer is None:
            return None
        results = tuple(Result(call.id, self.chance.choice(_TEXTS)) for call in self.answer.calls)
        message = self.chance.choice(("", "", "Hurry.")) if results else "Go on."
        return Told(self.answer.text, self.answer.calls, results, message)

    def _on(self, change: Callable[[Told], Told] = lambda told: told) -> Request:
        told = self._told()
        if told is None:
            return self.request
        return replace(self.request, turns=(*self.request.turns, change(told)))

    def _spelt(self) -> Request:
        def spelt(told: Told) -> Told:
            calls = tuple(
                structs.replace(
                    call, arguments=json.dumps(dict(sorted(call.values.items())), indent=1)
                )
                if call.values is not None
                else call
                for call in told.calls
            )
            return structs.replace(told, text=f" {told.text}\n", calls=calls)

        return self._on(spelt)

    def _changed(self) -> Request:
        def changed(told: Told) -> Told:
            call = Call("mine", "invalid", json.dumps({"error": self.chance.choice(_TEXTS)}))
            return structs.replace(told, text="Not what I said.", calls=(call,), results=())

        return self._on(changed)

    def _without_results(self) -> Request:
        return self._on(
            lambda told: structs.replace(told, results=told.results[1:], message="Well?")
        )

    def _dropped(self) -> Request:
        turns = list(self._on().turns)
        if turns:
            turns.pop(self.chance.randrange(len(turns)))
        return replace(self.request, turns=tuple(turns))

    def _compacted(self) -> Request:
        summary = Message(MessageRole.USER, f"Notes: {self.chance.random()}")
        return replace(self.request, first=(_FIRST[0], summary), turns=self.request.turns[-1:])

    def _forked(self) -> Request:
        turns = self.request.turns
        return replace(self.request, turns=turns[: self.chance.randint(0, len(turns))])

    def _sub_agent(self) -> Request:
        task = Message(MessageRole.USER, f"Look for {self.chance.randint(0, 9)}.")
        return Request((task,), tools=_TOOLS[:1])


@program(
    option("--edits", type=int, default=10_000),
    option("--seed", type=int, default=1),
    option("--only", choices=("edits", "cases", "clients")),
)
def main(given: Namespace) -> Report:
    """Play all parts; nothing may break."""
    parts = {
        "edits": lambda: _edited(given.edits, given.seed),
        "cases": gateway_cases.played,
        "clients": gateway_clients.played,
    }
    reports = [asyncio.run(part()) for name, part in parts.items() if given.only in (None, name)]
    return Report(
        "gateway",
        tuple(row for report in reports for row in report.rows),
        ok=all(report.ok for report in reports),
        ratios={name: ratio for report in reports for name, ratio in report.ratios.items()},
        notes=tuple(note for report in reports for note in report.notes[:20]),
    )


async def _edited(edits: int, seed: int) -> Report:
    total, found, wrong = Counter[str](), Counter[str](), list[str]()
    episodes = -(-edits // _REQUESTS)
    for number in range(episodes):
        chance = random.Random(f"{seed} {number}")  # noqa: S311 (no secret)
        engine = Speaking(functools.partial(_turn, chance))
        limits = Limits(turns=200, context_tokens=32768, max_new_tokens=512)
        played = conversations(engine, limits, number)
        harness = _Harness(played, chance)
        for _ in range(_REQUESTS):
            await harness.step()
        await played.close()
        wrong += [f"seed {seed}, episode {number}: {each}" for each in problems(played, engine)]
        total += harness.done
        found.update(
            branches=len(played.branches()),
            turns=len(played.episode_turns),
            notes=len(played.state.differences),
            sampled=engine.sampled,
            trained=trained(played),
        )
        if number % 50 == 0:
            sys.stderr.write(f"{number} of {episodes} episodes\n")
    rows = [Row(name, {"edits": float(count)}) for name, count in total.most_common()]
    return Report(
        "edits",
        (*rows, Row("all edits", {name: float(count) for name, count in found.items()})),
        ok=not wrong,
        ratios={"trained_to_sampled": found["trained"] / found["sampled"]},
        notes=tuple(wrong),
    )
