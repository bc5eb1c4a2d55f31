"""Harnesses that do whatever they like to conversations: do tokens stay exact?

    scripts/conformance gateway                  # 10,000 edits
    scripts/conformance gateway --edits 500 --seed 7

Each harness plays an episode over the gateway's conversations, against an engine that samples turns
by chance. Before each request it does something to what it was given: spells arguments anew, trims
texts, drops or repairs turns, compacts, forks, asks again, asks twice at once, or nothing.
Afterwards, for each episode: every request is its branch so far, each sampled token stands in one
branch and is trained on once, and no id is there that was neither sampled nor rendered as text.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from rollout_dev.report import Report, Row, parser
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.prompts import Message, MessageRole, Prompts
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import Toolbox
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.gateway.conversations import Conversations
from swe_rollout.gateway.dialects.base import tool
from swe_rollout.gateway.nodes import EndedError
from swe_rollout.gateway.values import Answer, BadRequestError, Call, Request, Result, Told
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.policy import Sampling
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, Generation

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


@dataclass(slots=True)
class _Random(TokenEngine):
    """Samples turns by chance, and keeps what it was asked and what it gave."""

    renderer: Renderer
    chance: random.Random
    calls: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    """The branch, the ids that were sent and those that were sampled."""

    async def info(self) -> EngineInfo:
        return EngineInfo("random", None, None, None)

    async def generate(self, request: GenerateRequest) -> Generation:
        ids = self._turn()[: request.max_new_tokens]
        self.calls.append((request.branch, tuple(request.input_ids.tolist()), ids))
        stopped = ids[-1] in request.stop_token_ids
        return Generation(
            ids,
            tuple(-self.chance.random() for _ in ids),
            FinishReason.STOP if stopped else FinishReason.LENGTH,
            prompt_tokens=len(request.input_ids),
        )

    async def aclose(self) -> None:
        """Nothing is held."""

    def _turn(self) -> tuple[int, ...]:
        chance = self.chance
        parts = [chance.choice(_TEXTS)]
        for _ in range(chance.choice((0, 1, 1, 1, 2))):
            name = chance.choice(("bash", "read", "no_such_tool"))
            arguments = {"command": chance.choice(_TEXTS), "n": chance.randint(0, 3)}
            body = json.dumps({"name": name, "arguments": arguments})
            body = body[:-3] if chance.random() < _BAD_CALLS else body
            parts.append(f"<tool_call>\n{body}\n</tool_call>")
        # Whatever a policy writes, its control tokens are single ids.
        backend, text = self.renderer.tokenizer.backend_tokenizer, "\n".join(parts)
        return tuple(backend.encode(f"{text}<|im_end|>", add_special_tokens=False).ids)


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
                replace(call, arguments=json.dumps(dict(sorted(call.values.items())), indent=1))
                if call.values is not None
                else call
                for call in told.calls
            )
            return replace(told, text=f" {told.text}\n", calls=calls)

        return self._on(spelt)

    def _changed(self) -> Request:
        def changed(told: Told) -> Told:
            call = Call("mine", "invalid", json.dumps({"error": self.chance.choice(_TEXTS)}))
            return replace(told, text="Not what I said.", calls=(call,), results=())

        return self._on(changed)

    def _without_results(self) -> Request:
        return self._on(lambda told: replace(told, results=told.results[1:], message="Well?"))

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


def main(arguments: Sequence[str]) -> int:
    """Play and print; return 1 if anything broke."""
    options = parser("scripts/conformance gateway", __doc__)
    options.add_argument("--edits", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args(arguments)
    return asyncio.run(_play(given.edits, given.seed)).printed(as_json=given.json)


async def _play(edits: int, seed: int) -> Report:
    renderer = Renderer.load(str(tokenizer_path()))
    total, found, problems = Counter[str](), Counter[str](), list[str]()
    episodes = -(-edits // _REQUESTS)
    for number in range(episodes):
        chance = random.Random(f"{seed} {number}")  # noqa: S311 (no secret)
        engine = _Random(renderer, chance)
        limits = Limits(turns=200, context_tokens=32768, max_new_tokens=512)
        parts = AgentParts(engine, renderer, Toolbox([]), Prompts(), limits)
        played = Conversations(parts, EpisodeId("gateway", "edits", number), Sampling())
        harness = _Harness(played, chance)
        for _ in range(_REQUESTS):
            await harness.step()
        await played.close()
        problems += [f"seed {seed}, episode {number}: {each}" for each in _problems(played, engine)]
        total += harness.done
        found.update(
            branches=len(played.branches()),
            turns=len(played.episode_turns),
            notes=len(played.notes),
            sampled=sum(len(ids) for _, _, ids in engine.calls),
            trained=sum(sum(branch.loss_mask) for branch in played.branches()),
        )
        if number % 50 == 0:
            sys.stderr.write(f"{number} of {episodes} episodes\n")
    rows = [Row(name, {"edits": float(count)}) for name, count in total.most_common()]
    return Report(
        "gateway",
        (*rows, Row("all", {name: float(count) for name, count in found.items()})),
        ok=not problems and found["sampled"] == found["trained"],
        ratios={"trained_to_sampled": found["trained"] / found["sampled"]},
        notes=tuple(problems[:20]),
    )


def _problems(played: Conversations, engine: _Random) -> list[str]:
    """Return what does not hold of an episode."""
    branches, turns, problems = played.branches(), played.episode_turns, list[str]()
    for branch, sent, ids in engine.calls:
        kept = branches[branch].token_ids
        if kept[: len(sent)] != sent or kept[len(sent) : len(sent) + len(ids)] != ids:
            problems.append(f"branch {branch} does not hold a request of {len(sent)} ids")
        if any(branches[branch].loss_mask[len(sent) + at] != 1 for at in range(len(ids))):
            problems.append(f"branch {branch} does not train what was sampled behind {len(sent)}")
    for turn in turns:
        start = turn.request.length
        data = np.array(branches[turn.branch].token_ids[:start], dtype="<i4").tobytes()
        if hashlib.sha256(data).hexdigest() != turn.request.sha256:
            problems.append(f"turn {turn.index} has another prompt than its branch")
    if len(turns) != len(engine.calls):
        problems.append(f"{len(turns)} turns of {len(engine.calls)} calls")
    opened = {note.branch for note in played.notes}
    unexplained = [branch.index for branch in branches[1:] if branch.index not in opened]
    problems += [f"branch {index} was opened without a reason" for index in unexplained]
    return problems
