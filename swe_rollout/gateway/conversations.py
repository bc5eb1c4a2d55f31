"""The conversations of one episode, as a tree of branches over exact tokens.

A request is known by its conversation alone, because harnesses send no ids that could be trusted.
What extends an answer is a delta on the sampled ids. What differs opens a branch, whose prompt is
rendered anew or copied from the ids up to where the two part; either way nothing sampled is
tokenised again, and each sampled token is trained on in the one branch in which it was sampled.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Self

from swe_rollout.agent.branches import EpisodeState, OpenBranch
from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.first_prompt import PromptTooLongError
from swe_rollout.agent.history import UnfitHistoryError
from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.outside import Outside
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.policy_turns import PolicyTurns
from swe_rollout.agent.renderer import Rendered
from swe_rollout.agent.sampled_turn import read_sampled
from swe_rollout.agent.tools.base import Toolbox
from swe_rollout.errors import EpisodeError, InternalError, failure_of
from swe_rollout.gateway.answers import answer_of, calls_of
from swe_rollout.gateway.asked import encode
from swe_rollout.gateway.matching import (
    Chains,
    changes,
    exchange_of,
    results_of,
    size_of,
    tells,
)
from swe_rollout.gateway.nodes import (
    EndedError,
    Node,
    OfHarness,
    has_failed,
    newly_left_out,
    why_apart,
    within,
)
from swe_rollout.gateway.values import Answer, BadRequestError, Request
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.branch import Branch, BranchKind
from swe_rollout.types.episode import EpisodeId, StopReason
from swe_rollout.types.trajectory import ChatLine, ChatRecord, Difference
from swe_rollout.types.turn import Turn

_LONGEST_TOKEN: Final = 32
"""Characters of a token, more than those of any text that means something."""
MOST_BRANCHES: Final = 256
"""The most branches of an episode; each has a prompt of its own in the record."""


class Conversations:
    """Answers the requests of one harness."""

    def __init__(
        self,
        parts: AgentParts,
        episode: EpisodeId,
        sampling: Sampling,
        *,
        state: EpisodeState | None = None,
        journal: Outside | None = None,
    ) -> None:
        """`state` and `journal` are those of the agent in whose place the harness is."""
        self._journal = journal
        self.state = state or EpisodeState(parts, lambda _: None)
        self.over = asyncio.Event()
        """Set once nothing is answered any more: a limit was reached, or something failed."""
        self._chains = Chains()
        self.stop: StopReason | None = None
        """The limit that ended the episode."""
        self._parts, self._episode, self._sampling = parts, episode, sampling
        self._nodes: dict[bytes, list[Node]] = {}
        self._is_closed, self._left_out = False, set[str]()
        self._rendering = asyncio.Lock()

    @classmethod
    def of_agent(cls, context: AgentContext) -> Self:
        """Return the conversations of a harness that is the agent of an episode."""
        return cls(
            context.parts,
            context.episode,
            context.sampling,
            state=context.state,
            journal=context.outside,
        )

    @property
    def episode_turns(self) -> Sequence[Turn]:
        """All turns so far."""
        return self.state.turns

    def branches(self) -> tuple[Branch, ...]:
        """Return all branches, the main one first."""
        return tuple(branch.record() for branch in self.state.branches if len(branch.log))

    def prompts(self) -> tuple[ChatLine, ...]:
        """Return the messages that the branches start with."""
        return self.state.prompts()

    def chat(self) -> ChatRecord | None:
        """Return None: these conversations have tokens."""
        return None

    async def close(self) -> None:
        """Answer nothing any more, and wait until nothing is sampled."""
        self._is_closed = self.state.is_over = True
        tasks = [node.task for nodes in self._nodes.values() for node in nodes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def answer(self, request: Request, digests: list[bytes] | None = None) -> Answer:
        """Answer a request; one that was answered, and not gone on from, gets the same answer.

        `digests` are its own. Cancelling the call does not end the sampling. Raises
        BadRequestError, EndedError, and the error that ended the episode.
        """
        self._check()
        digests = digests or self.digests(request, size_of(request))
        node = next((n for n in self._nodes.get(digests[-1], ()) if n.answers(request)), None)
        # Nothing is awaited before the node is known, so that equal requests find it.
        node = node or self._begun(request, digests)
        try:
            return await asyncio.shield(node.task)
        except asyncio.CancelledError:
            if node.task.cancelled():
                self._check()
            raise

    def digests(self, request: Request, size: int) -> list[bytes]:
        """Return the digests of a request of at most `size` characters. Raises BadRequestError."""
        longest = self._parts.limits.context_tokens * _LONGEST_TOKEN
        # What is far too long is refused without much work.
        if size > longest and size_of(request) > longest:
            raise _too_long()
        return self._chains.of(request, size)

    async def count(self, request: Request) -> int:
        """Return how many tokens a conversation has as a prompt. Raises BadRequestError."""
        return len((await self._prompt(request)).ids)

    def _check(self) -> None:
        if self.state.failure is not None:
            raise self.state.failure
        if self._is_closed or self.stop is not None:
            raise EndedError(self.stop.value if self.stop else "its session was closed")

    def _begun(self, request: Request, digests: list[bytes]) -> Node:
        """Start to sample the answer to a new request."""
        tools = Toolbox(OfHarness(spec) for spec in request.tools)
        parts = replace(self._parts, toolbox=tools)
        parent = self._parent(request, digests)
        results = results_of(parent.calls, request.turns[-1]) if parent else None
        if parent is None or results is None:
            node = Node(request.limits)
            work = self._anew(node, request, parts, digests)
        elif parent.is_extended:
            node = Node(request.limits, parent)
            work = self._forked(node, parent, request, parts, results)
        else:
            parent.is_extended = True
            node = Node(request.limits, parent, parent.branch)
            work = self._on(node, parent, request, parts, results)
        same = self._nodes.setdefault(digests[-1], [])
        same.append(node)
        node.task = asyncio.create_task(work)
        # What failed keeps nothing of its request: whoever asks again is told again.
        node.task.add_done_callback(lambda task: same.remove(node) if has_failed(task) else None)
        return node

    async def _on(
        self,
        node: Node,
        parent: Node,
        request: Request,
        parts: AgentParts,
        results: Sequence[str],
    ) -> Answer:
        """Answer a request that goes on from the end of a branch."""
        last = request.turns[-1]
        differs = changes(last, parent.answer) if parent.answer else ()
        begin = partial(self._note, parent.branch, "; ".join(f"other {e}" for e in differs))
        try:
            return await self._sampled(node, request, parts, results, last.message, begin=begin)
        except BadRequestError:
            parent.is_extended = len(parent.branch.log) > parent.end
            raise

    async def _forked(
        self,
        node: Node,
        parent: Node,
        request: Request,
        parts: AgentParts,
        results: Sequence[str],
    ) -> Answer:
        """Answer a request that goes on from the middle of a branch."""
        message = request.turns[-1].message
        delta = await off_loop(
            parts.tokens.renderer.delta,
            parent.branch.log.ids[parent.end - 1],
            parent.calls,
            results=results,
            tools=parts.toolbox.specs,
            open_reasoning=parent.reasoning_is_open,
            messages=(message,) if message else (),
        )
        prompt = Rendered([*parent.branch.log.ids[: parent.end], *delta.ids], delta.opens_reasoning)
        begin = partial(self._open, node, prompt, why="goes on from an earlier turn")
        return await self._sampled(node, request, parts, begin=begin)

    async def _anew(
        self, node: Node, request: Request, parts: AgentParts, digests: Sequence[bytes]
    ) -> Answer:
        """Answer a request whose conversation is rendered as a whole."""
        prompt = await self._prompt(request)

        def begin() -> None:
            self._open(node, prompt, why=why_apart(self._nodes, request, digests))
            node.branch.first = request.first

        return await self._sampled(node, request, parts, begin=begin)

    async def _prompt(self, request: Request) -> Rendered:
        """Render a conversation. Raises BadRequestError."""
        renderer = self._parts.tokens.renderer
        exchanges = [exchange_of(turn) for turn in request.turns]
        for spec in request.tools:
            text = json.dumps(spec.function(), ensure_ascii=False)
            if any(mark in text for mark in renderer.controls.values() if mark.strip()):
                raise BadRequestError(f"the tool {spec.name} names a control token of the model")
        try:
            # One at a time: no harness takes the thread from all others.
            async with self._rendering:
                return await off_loop(renderer.history, request.first, exchanges, request.tools)
        except UnfitHistoryError as error:
            raise BadRequestError(f"the model's chat template can't show this: {error}") from error

    def _parent(self, request: Request, digests: list[bytes]) -> Node | None:
        """Return the node whose answer is the last turn that the harness tells."""
        if not request.turns:
            return None
        found = [
            node
            for node in self._nodes.get(digests[-2], ())
            if node.answer is not None and tells(request.turns[-1], node.answer)
        ]
        # Of answers that are told alike, one from which nothing goes on needs no other branch.
        return min(found, key=lambda node: node.is_extended, default=None)

    def _open(self, node: Node, prompt: Rendered, *, why: str) -> None:
        # Engines refuse a request that could fill the context to its last token.
        if len(prompt.ids) + 1 >= self._parts.limits.context_tokens:
            raise _too_long()
        branches = self.state.branches
        if len(branches) >= MOST_BRANCHES:
            raise self._ended(StopReason.TURN_LIMIT)
        above = node.parent.branch if node.parent else branches[0] if branches else None
        kind = BranchKind.RESTART if above else BranchKind.MAIN
        length = node.parent.end if node.parent else None
        node.branch = OpenBranch(len(branches), kind, above, prompt, parent_length=length)
        node.branch.first = ()
        branches.append(node.branch)
        self._note(node.branch, why)

    def _note(self, branch: OpenBranch, reason: str) -> None:
        if reason:
            self.state.differences.append(Difference(len(self.state.turns), branch.index, reason))

    async def _sampled(
        self,
        node: Node,
        request: Request,
        parts: AgentParts,
        results: Sequence[str] = (),
        message: str = "",
        *,
        begin: Callable[[], None],
    ) -> Answer:
        """Sample an answer. `begin` notes and opens what it needs: in the order of the turns."""
        turns = PolicyTurns(within(parts, request), self._episode, self._sampling, self.state)
        async with self.state.engine:
            self._check()
            index = len(self.state.turns)
            if index >= parts.limits.turns:
                raise self._ended(StopReason.TURN_LIMIT)
            begin()
            for each in newly_left_out(request, self._left_out):
                self._note(node.branch, f"left out: {each}")
            try:
                turn, builder = await turns.take(node.branch, results, message)
                if builder is not None and self._journal is not None:
                    # No answer leaves before it is durable: its harness can't be told another.
                    after = node.parent.turn if node.parent else None
                    await self._journal.note(encode(request, after))
            except PromptTooLongError as error:
                raise _too_long() from error
            except EpisodeError as error:
                raise self._failed(error) from error
            except Exception as error:
                raise self.fail(error) from error
            if builder is None and turn.stop is StopReason.CONTEXT_FULL:
                node.branch.forget_delta()
                raise _too_long()
            if builder is None or turn.stop is StopReason.TIME_LIMIT:
                raise self._ended(turn.stop or StopReason.TIME_LIMIT)
            if turn.stop is StopReason.CONTEXT_FULL:
                turn = await read_sampled(
                    parts.tokens.renderer,
                    builder,
                    tools=(),
                    opens_reasoning=node.branch.opens_reasoning,
                )
            node.end, node.turn = len(node.branch.log), index
            node.calls, node.reasoning_is_open = calls_of(turn, request), turn.reasoning_is_open
            node.branch.follow(node.calls, reasoning_is_open=turn.reasoning_is_open)
            self.state.report(index)
            prompt_tokens = node.end - len(builder.ids)
            return answer_of(turn, self.state.turns[index], prompt_tokens, request, parts)

    def fail(self, error: Exception) -> EpisodeError:
        """End the episode by a fault of ours, which no policy is charged with."""
        return self._failed(failure_of(error, InternalError, "the gateway"))

    def _failed(self, error: EpisodeError) -> EpisodeError:
        self.state.failure = error
        self.over.set()
        return error

    def _ended(self, stop: StopReason) -> EndedError:
        self.stop = stop
        self.over.set()
        return EndedError(stop.value)


def _too_long() -> BadRequestError:
    return BadRequestError(
        "this conversation is longer than the model's context", code="context_length_exceeded"
    )
