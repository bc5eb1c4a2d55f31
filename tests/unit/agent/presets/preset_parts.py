"""Shared by tests of presets: an episode of one, with calls in any format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from swe_rollout.agent.call_text import write_calls
from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.program import AGENTS, run_agent
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools import toolbox
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.agent import AgentSpec
from swe_rollout.spec.limits import Limits
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import CallStatus, ToolCall
from swe_rollout.worker.assembly import prompts_of
from unit.agent.agent_parts import Echo, Player, context_of, player


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(CallStatus.OK, "", name, arguments)


def run(command: str) -> ToolCall:
    return call("bash", command=command)


def view(path: str) -> ToolCall:
    return call("str_replace_editor", command="view", path=path)


def create(path: str) -> ToolCall:
    return call("str_replace_editor", command="create", path=path, file_text="x = 1\n")


SUBMIT = call("submit")


@cache
def renderer(form: str) -> Renderer:
    return Renderer.load(str(tokenizer_path()), tool_format=None if form == "auto" else form)


@dataclass
class PresetEpisode:
    """An episode of a preset, as a job with `agent: {use, with}` plays it."""

    context: AgentContext
    engine: Player
    use: str
    options: dict[str, object]

    async def run(self) -> StopReason:
        return await run_agent(AGENTS.load(self.use, self.options), self.context)

    @property
    def answers(self) -> list[str]:
        return [seen.text for turn in self.context.turns for seen in turn.observations]

    @property
    def text(self) -> str:
        """All that the policy was shown, and said."""
        return self.context.parts.tokens.renderer.decode(self.context.log.ids)

    @property
    def said(self) -> str:
        """What no policy sampled: prompt, results and messages."""
        pairs = zip(self.context.log.ids, self.context.log.loss_mask, strict=True)
        return self.context.parts.tokens.renderer.decode([each for each, mask in pairs if not mask])


def episode(
    use: str,
    *turns: Sequence[object],
    options: dict[str, object] | None = None,
    sandbox: Sandbox | None = None,
    limits: Limits = Limits(turns=12),  # noqa: B008 - frozen
    **agent: object,
) -> PresetEpisode:
    """Return an episode whose policy says `turns`: texts, or words and calls for the job's format.

    `agent`: further fields of the job's agent.
    """
    spec = AgentSpec.model_validate({"use": use, "with": options or {}, **agent})
    form = renderer(spec.tool_format).tool_format
    texts = [turn if isinstance(turn, str) else written(turn, form) for turn in turns]
    tools = toolbox(spec.tools)
    engine = player(*texts)
    parts = AgentParts(
        engine, renderer(spec.tool_format), tools, prompts_of(spec, tools.specs), limits
    )
    context = context_of(parts, sandbox=sandbox)
    return PresetEpisode(context, engine, use, spec.with_)


def written(turn: Sequence[object], form: str) -> str:
    return "\n".join(
        write_calls(form, [each]) if isinstance(each, ToolCall) else str(each) for each in turn
    )


@dataclass(frozen=True)
class Play:
    """One episode of a preset, and what must come of it."""

    use: str
    turns: Sequence[Sequence[object] | str]
    stop: StopReason = StopReason.FINISHED
    taken: int | None = None
    """Turns that the policy took; by default all of `turns`."""
    options: Mapping[str, object] = field(default_factory=dict)
    ran: Sequence[str] | None = None
    """All commands that reached the sandbox."""
    answers: Mapping[int, str] = field(default_factory=dict)
    """Words of the result with this number."""
    said: Mapping[str, int] = field(default_factory=dict)
    """How often the policy was told these words, its own not counted."""
    agent: Mapping[str, object] = field(default_factory=dict)
    limits: Limits = Limits(turns=12)  # noqa: RUF009 - frozen
    fails: str = ""
    """Commands that hold this text fail."""

    async def check(self) -> None:
        sandbox = Echo(fails=self.fails)
        played = episode(
            self.use,
            *self.turns,
            options=dict(self.options),
            sandbox=sandbox,
            limits=self.limits,
            **self.agent,
        )
        assert await played.run() is self.stop
        assert len(played.context.turns) == (self.taken or len(self.turns))
        assert self.ran is None or sandbox.commands == [*self.ran]
        for at, words in self.answers.items():
            assert words in played.answers[at]
        assert {words: played.said.count(words) for words in self.said} == self.said
