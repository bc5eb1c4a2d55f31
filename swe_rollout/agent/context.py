"""AgentContext: one agent of an episode as its program sees it. Read `episode` first.

In a turn, the log so far is the request; the sampled tokens are appended and never changed; the
calls in them run one after the other, and their observations become the delta of the next turn.
A program can take these steps one by one, add messages between them, or start sub-agents. Whatever
it does, only sampled tokens are trained on, and each of them belongs to exactly one branch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from swe_rollout.agent.branches import SUMMARY_REQUEST, EpisodeState, OpenBranch, with_summary
from swe_rollout.agent.chat_turns import ChatTurns
from swe_rollout.agent.outside import Outside
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.policy_turns import PolicyTurns
from swe_rollout.agent.prompts import Message
from swe_rollout.agent.sampled_turn import SampledTurn, TurnBuilder
from swe_rollout.agent.steps import RESUMABLE, Origin, StepOrder, first_messages, misuse
from swe_rollout.agent.tools.base import ToolError, cut_middle, encodable
from swe_rollout.agent.tools.state import ToolState
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.branch import Branch, BranchKind
from swe_rollout.tokens.log import TokenLog
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId, StopReason
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import ChatLine, ChatRecord
from swe_rollout.types.turn import Observation, ToolCall, Turn

GRACE_S = 60.0
"""Seconds that a program may still run, outside of steps, after the episode's time is up."""


class AgentContext(StepOrder):
    """One agent: call `begin()`, then `turn()` until it returns a stop reason.

    `turns` and `log` can be read at any time, even after a failure: sampled tokens are kept.
    Observations of the last turn are in the turn but not in the log: no request held them.
    A step that is not allowed, such as a turn after a limit, raises MisuseError.
    """

    def __init__(
        self,
        parts: AgentParts,
        *,
        instance: Instance,
        episode: EpisodeId,
        sampling: Sampling,
        sandbox: Sandbox,
        on_turn: Callable[[Turn], None] = lambda _: None,
        origin: Origin | None = None,
    ) -> None:
        """`on_turn` gets each turn that ended without a failure; `origin` is a sub-agent's."""
        self._origin = origin or Origin(EpisodeState(parts, on_turn), None, 0, parts.limits.turns)
        super().__init__(self._origin.state)
        self.parts = parts
        self.instance = instance
        self.episode = episode
        self.sandbox = sandbox
        self.said = ""
        """The text of the last turn without its reasoning."""
        self.sampling = sampling
        self.outside: Outside | None = None  # of an agent that runs in the sandbox
        kind = PolicyTurns if parts.chat is None else ChatTurns
        self._policy = kind(parts, episode, sampling, self._state)
        self._own: list[int] = []
        self._first: Sequence[Message] = ()
        self._message = ""

    @property
    def can_continue(self) -> bool:
        """Whether the agent can go on, if necessary after a message: no limit was reached."""
        return self.failure is None and self.stop in RESUMABLE

    @property
    def failure(self) -> Exception | None:
        """The exception that failed a step of any agent and so ended the episode."""
        return self._state.failure

    @property
    def clock(self) -> Deadline:
        """The episode's clock, which all of its agents share."""
        return self._state.deadline

    @property
    def tool_state(self) -> ToolState:
        """The state of the tools in this episode."""
        return self._state.tools

    @property
    def turns(self) -> Sequence[Turn]:
        """The turns of this agent so far."""
        return [self._state.turns[index] for index in self._own]

    @property
    def episode_turns(self) -> Sequence[Turn]:
        """The turns of all agents of the episode so far."""
        return self._state.turns

    @property
    def log(self) -> TokenLog:
        """The tokens of the current branch. Read-only: only the harness appends to it."""
        return self._branch.log if self._branch else TokenLog()

    def branches(self) -> tuple[Branch, ...]:
        """Return all branches of the episode so far, the main one first."""
        return tuple(branch.record() for branch in self._state.branches)

    @property
    def task(self) -> tuple[Message, ...]:
        """The messages that present the task, as `begin` renders them."""
        # Ask the sandbox for its folder: a sandbox without namespaces has no /testbed.
        return self.parts.prompts.messages(self.instance.problem_statement, self.sandbox.workdir)

    def prompts(self) -> tuple[ChatLine, ...]:
        """Return the messages that the branches of the episode start with."""
        return self._state.prompts()

    def chat(self) -> ChatRecord | None:
        """Return the conversations of an episode over a chat API, or None if it has tokens."""
        return self._state.chat()

    async def begin(self, messages: str | Sequence[Message] | None = None) -> None:
        """Render the first prompt and start the clock. Call it once, before any turn.

        `messages` replace the task's; a string becomes a user message after the system prompt.
        """
        if self._branch is not None:
            raise misuse("begin() was called twice")
        self._first = self.task if messages is None else first_messages(self.parts, messages)
        with self._step():
            if self._origin.branch is None:
                self._state.start_clock()
            kind = BranchKind.SUB_AGENT if self._origin.branch else BranchKind.MAIN
            self._branch = await self._state.open_branch(
                kind, self._origin.branch, self.parts, self._first
            )

    async def turn(self) -> StopReason | None:
        """Sample a turn and run its calls; return why the agent stops, or None if it can go on.

        The request includes the results of the last calls. A log above `limits.compactAt` is
        summarised first. EngineError and SandboxError propagate; no turn can follow either of them,
        or a limit.
        """
        if await self._compaction_is_due() and (stop := await self.compact()) is not None:
            return stop
        turn = await self.generate()
        if turn.stop is None:
            await self.run(turn.calls)
        return self.stop

    async def finish(self) -> StopReason:
        """Take turns until one of them or a limit stops the agent. `said` is its last message."""
        while (stop := await self.turn()) is None:
            pass
        return stop

    async def generate(self) -> SampledTurn:
        """Sample a turn and parse its calls, but run none.

        The request includes the results of the last calls and the message passed to `say` since. If
        a limit is reached, nothing may have been sampled; `stop` then gives the reason.
        """
        branch = self._not_at_limit()
        if self.stop is not None and not self._message:
            raise misuse(f"it has stopped ({self.stop}) and nothing was said since")
        if self._pending and self._pending.left:
            raise misuse("a turn was asked for before all calls of the last one were answered")
        with self._step():
            # Only engine calls are exclusive; everything else in an episode may overlap.
            async with self._state.engine:
                turn = await self._generate(branch)
        self.stop = turn.stop
        return turn

    async def run(self, calls: Sequence[ToolCall] | None = None) -> Sequence[Observation]:
        """Run calls of the last turn and return their observations, in order.

        `calls` must be the next calls without a result; the default is all of them. Fewer
        observations are returned if the work was submitted or the time is up; `stop` says which.
        """
        pending = self._open_turn()
        chosen = pending.next(calls)
        before = len(pending.observations)
        with self._step():
            try:
                self.stop = await self._policy.run(pending, chosen, self.sandbox, self._delegate)
            finally:
                self._close_calls(pending)
        return pending.observations[before:]

    def answer(self, call: ToolCall, text: str) -> None:
        """Set the result of the next call of the last turn to `text` instead of running it.

        Use it to refuse a call, or to get the result from somewhere else.
        """
        pending = self._open_turn()
        pending.next([call])
        text = cut_middle(encodable(text), self.parts.limits.tool_output_bytes)
        pending.observations.append(Observation(text))
        self._close_calls(pending)

    def say(self, text: str) -> None:
        """Add a user message for the next turn to read. It is not trained on.

        All calls of the last turn must have a result. A policy that ended by itself, with no call
        or a submission, goes on after it. All texts since the last turn form one message, which
        before the first turn ends the prompt.

        Raises InternalError if the chat template can't append a message exactly.
        """
        branch, pending = self._not_at_limit(), self._pending
        if not text.strip():
            raise misuse("an empty message was written")
        if pending and self.stop is StopReason.SUBMITTED:
            pending.refuse_the_rest()
            self._close_calls(pending)
        if pending and pending.left:
            raise misuse("a message was written before all calls were answered")
        if self.parts.renderer is not None and branch.has_turns:
            self.parts.renderer.check_message(after_calls=bool(pending and pending.calls))
        self._message = "\n\n".join(filter(None, [self._message, encodable(text)]))

    async def spawn(
        self,
        prompt: str | Sequence[Message],
        *,
        tools: Sequence[str] | None = None,
        turns: int | None = None,
    ) -> AgentContext:
        """Start a sub-agent and return its context, ready for its first turn.

        It works in the same sandbox, in a branch of its own that starts with `prompt` (a string: a
        user message after the system prompt), with all tools or the named ones. `turns` limits its
        own turns. Raises MisuseError beyond `MAX_DEPTH` or `MAX_SUB_AGENTS`.
        """
        branch = self._begun()
        self._origin.check_room()
        toolbox = self.parts.toolbox if tools is None else self.parts.toolbox.only(tools)
        child = AgentContext(
            replace(self.parts, toolbox=toolbox),
            instance=self.instance,
            episode=self.episode,
            sampling=self.sampling,
            sandbox=self.sandbox,
            origin=self._origin.spawned(branch, turns),
        )
        await child.begin(prompt)
        return child

    async def _delegate(self, prompt: str, *, has_tools: bool) -> str:
        """Run a sub-agent for a tool; return its last message, and why it ended early if it did."""
        if not self.can_spawn:
            raise ToolError("no further agent may be asked: there are too many, or too deep")
        tools = [spec.name for spec in self.parts.toolbox.specs if not spec.ends_episode]
        child = await self.spawn(prompt, tools=tools if has_tools else ())
        stop = await child.finish()
        ended = "" if stop is StopReason.FINISHED else f"(the agent was stopped: {stop.value})"
        return "\n\n".join(filter(None, (child.said, ended))) or "(the agent said nothing)"

    @property
    def can_spawn(self) -> bool:
        """Whether this agent may start another sub-agent."""
        return self._origin.can_spawn

    async def restart(self, messages: str | Sequence[Message]) -> None:
        """Go on in a new branch that starts with `messages`; the old one stays in the record."""
        first = first_messages(self.parts, messages)
        await self._restart(first)
        self._first = first

    async def compact(self) -> StopReason | None:
        """Ask the policy for a summary, and go on from it and the first prompt in a new branch.

        The summary is sampled, and trained on, in the old branch only; in the new one it is part of
        the prompt. Returns a stop reason if a limit leaves no room for the summary.
        """
        self.say(SUMMARY_REQUEST)
        turn = await self.generate()
        if turn.stop not in RESUMABLE:
            return turn.stop
        await self._restart(with_summary(self._first, turn.words))
        return None

    async def _restart(self, first: Sequence[Message]) -> None:
        branch = self._not_at_limit()
        with self._step():
            opened = await self._state.open_branch(BranchKind.RESTART, branch, self.parts, first)
        branch.log.close()
        self._branch, self._pending, self._message, self.stop = opened, None, "", None

    async def _compaction_is_due(self) -> bool:
        """Return whether the log, including the next delta, would exceed `compactAt`."""
        branch, pending, limits = self._ready(), self._pending, self.parts.limits
        # The policy must read the program's message before the history is dropped.
        if limits.compact_at is None or self.stop or self._message:
            return False
        if not pending or pending.left:
            return False
        with self._step():
            return await branch.is_full(self.parts, pending.results, self._message)

    async def _generate(self, branch: OpenBranch) -> SampledTurn:
        index = len(self._state.turns)
        if index >= self.parts.limits.turns or len(self._own) >= self._origin.turns:
            return SampledTurn(stop=StopReason.TURN_LIMIT)
        results = self._pending.results if self._pending else []
        if self._message and not branch.has_turns:
            await self._state.extend_prompt(branch, self.parts, self._message)
            self._message = ""
        try:
            turn, builder = await self._policy.take(branch, results, self._message)
        finally:
            if len(self._state.turns) > index:
                self._own.append(index)
        if builder is not None:
            self._pending, self._message, self.said = builder, "", turn.words
            if turn.stop is not None:
                self._state.report(index)
        return turn

    def _close_calls(self, pending: TurnBuilder) -> None:
        """Record the results so far; once every call has one, check whether the policy is stuck."""
        index = pending.index
        self._state.turns[index] = pending.build()
        if self.stop is not None or not pending.left:
            self._state.report(index)
        if not pending.left:
            limits = self.parts.limits
            last = self._own[-max(limits.format_errors, limits.repeated_turns or 1) :]
            self.stop = self.stop or self._policy.stuck([self._state.turns[at] for at in last])

    def time_limit(self) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """Cancel the block `GRACE_S` seconds after the episode's time is up."""
        return self._state.deadline.enforced(grace_s=GRACE_S)

    def close(self) -> None:
        """End the episode: no agent may take another step. Report the turns left open."""
        self._state.is_over = True
        if self.failure is None:
            self._state.report_all()
