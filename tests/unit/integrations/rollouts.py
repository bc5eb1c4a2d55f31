"""Jobs for tests of adapters: sandboxes in memory, rewards by rule, and a policy that plays texts
with the logprobs of a model, aborts where it is told to and changes its weights meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import yaml

from rollout_dev.fileless import FilelessSandbox
from swe_rollout.agent.encoding import Scaffold
from swe_rollout.agent.renderer import Renderer
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.transformers.scheduler import log_softmax
from swe_rollout.errors import SandboxError
from swe_rollout.grading.rewards import RewardInput
from swe_rollout.sandbox.base import ExecResult, Sandbox, SandboxProvider, SandboxRequest
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan

if TYPE_CHECKING:
    from numpy.typing import NDArray

RENDERER = Renderer.load(str(tokenizer_path()))
END = "<|im_end|>"
TASKS = ("one", "two")


def encode(*texts: str) -> list[int]:
    return RENDERER._encoding.encode([Scaffold(text) for text in texts])


def bash(command: str) -> str:
    body = json.dumps({"name": "bash", "arguments": {"command": command}})
    return f"<tool_call>\n{body}\n</tool_call>"


def ask(prompt: str) -> str:
    body = json.dumps({"name": "agent", "arguments": {"prompt": prompt}})
    return f"<tool_call>\n{body}\n</tool_call>"


SUBMIT = '<tool_call>\n{"name": "submit", "arguments": {}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "bash"\n</tool_call>'
PARALLEL = f"Two at once.\n{bash('ls')}\n{bash('pwd')}"


class Model(Protocol):
    """A causal model: from ids to the logits of what follows each, float32 `[n, vocabulary]`."""

    def __call__(self, ids: Sequence[int], /, start: int = 0) -> NDArray[np.float32]:
        """Leave out what follows the ids before `start`."""
        ...


def hashed_model(seed: int) -> Model:
    """A model without parameters: what follows depends on all ids so far."""
    base = np.random.default_rng(seed).normal(size=RENDERER.vocab_size).astype(np.float32)

    def logits(ids: Sequence[int], /, start: int = 0) -> NDArray[np.float32]:
        state, found = seed, []
        for position, each in enumerate(ids):
            state = (state * 6364136223846793005 + each + 1442695040888963407) % 2**64
            if position >= start:
                found.append(np.roll(base, state % len(base)) * (1 + state % 7 / 10))
        return np.array(found, dtype=np.float32)

    return logits


@dataclass
class Policy(TokenEngine):
    """Plays texts, each token with its logprob under a model, as if it had been sampled.

    `plays` has, by branch, the texts of its turns. After `abort_every` tokens a call is aborted,
    and the other weights sample the next ones.
    """

    plays: Mapping[int, Sequence[str]]
    models: Mapping[str, Model]
    abort_every: int | None = None
    requests: list[GenerateRequest] = field(default_factory=list)
    released: list[EpisodeId] = field(default_factory=list)
    before: Callable[[GenerateRequest], None] = lambda request: None  # noqa: ARG005
    pause_s: float = 0.0
    pause_by: Mapping[str, float] = field(default_factory=dict)
    """By task."""
    closings: int = 0
    aborting: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: calls in flight end with a few tokens, as aborted."""
    sampled: int = 0
    """Tokens sampled so far, of all episodes."""
    _sampled_by: dict[int, str] = field(default_factory=dict)

    def version_of(self, ids: Sequence[int]) -> str:
        """Return the weights that sampled the last of these ids."""
        return self._sampled_by[hash(tuple(ids))]

    async def info(self) -> EngineInfo:
        return EngineInfo("tiny", 8192, RENDERER.vocab_size, None, str(tokenizer_path()))

    async def generate(self, request: GenerateRequest) -> Generation:
        self.requests.append(request)
        self.before(request)
        await asyncio.sleep(self.pause_by.get(request.episode.instance, self.pause_s))
        script = self._script(request)
        bound = request.max_new_tokens
        if self.aborting.is_set():
            bound = min(bound, 2)
        if self.abort_every is not None:
            bound = min(bound, self.abort_every)
        ids = script[:bound]
        names = list(self.models)
        version = names[self.sampled // (self.abort_every or 10**9) % len(names)]
        self.sampled += len(ids)
        if ids == script:
            reason = FinishReason.STOP
        elif bound == request.max_new_tokens:
            reason = FinishReason.LENGTH
        else:
            reason = FinishReason.ABORT
        return Generation(
            tuple(ids),
            self.logprobs(version, request, ids),
            reason,
            prompt_tokens=len(request.input_ids),
            cached_tokens=3,
            weight_versions=(WeightSpan(version, 0, len(ids)),) if ids else (),
        )

    def logprobs(
        self, version: str, request: GenerateRequest, ids: Sequence[int]
    ) -> tuple[float, ...]:
        whole = [*request.input_ids.tolist(), *ids]
        start = len(whole) - len(ids)
        for end in range(start, len(whole)):
            self._sampled_by[hash(tuple(whole[: end + 1]))] = version
        rows = self.models[version](whole[:-1], start - 1)
        temperature = request.sampling.temperature
        return tuple(
            float(log_softmax(row, temperature)[each]) for row, each in zip(rows, ids, strict=True)
        )

    def _script(self, request: GenerateRequest) -> list[int]:
        """Return what is left of the turn that the request opens or goes on with."""
        asked = [
            each
            for each in self.requests
            if (each.episode, each.branch, each.turn)
            == (request.episode, request.branch, request.turn)
        ]
        turns = {
            each.turn
            for each in self.requests
            if (each.episode, each.branch) == (request.episode, request.branch)
        }
        texts = self.plays[min(request.branch, max(self.plays))]
        script = encode(texts[min(len(turns) - 1, len(texts) - 1)] + END)
        return script[len(request.input_ids) - len(asked[0].input_ids) :]

    def release(self, episode: EpisodeId) -> None:
        self.released.append(episode)
        self.requests = [each for each in self.requests if each.episode != episode]

    async def aclose(self) -> None:
        self.closings += 1


class InMemory(FilelessSandbox):
    """Prints each command; the harness's own scripts get a base, and a diff of nothing."""

    def __init__(self, provider: InMemorySandboxes) -> None:
        self._provider = provider

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        **_: object,
    ) -> ExecResult:
        if env is not None:
            return ExecResult(0, b"" if "MAX_BYTES" in env else b"c0ffee", b"", stdout_bytes=6)
        await self._provider.tools.wait()
        if self._provider.lost:
            self._provider.lost -= 1
            raise SandboxError("the sandbox is gone")
        output = str(command).encode()
        self._provider.commands.append(str(command))
        return ExecResult(0, output, b"", stdout_bytes=len(output))

    async def close(self) -> None:
        self._provider.open -= 1


class InMemorySandboxes(SandboxProvider):
    """One for a test: `CURRENT` is the last one that was opened."""

    def __init__(self) -> None:
        global CURRENT  # noqa: PLW0603 - the job makes it, the test looks at it
        self.started = 0
        self.open = 0
        self.lost = 0
        """Commands to come that find their sandbox gone."""
        self.refused = 0
        """Sandboxes to come that can't be started."""
        self.commands: list[str] = []
        self.tools = asyncio.Event()
        """Unset: tools hang."""
        self.tools.set()
        CURRENT = self

    async def start(self, request: SandboxRequest) -> Sandbox:
        del request
        if self.refused:
            self.refused -= 1
            raise SandboxError("no sandbox for you")
        self.started += 1
        self.open += 1
        return InMemory(self)


CURRENT: InMemorySandboxes | None = None


def sandboxes() -> InMemorySandboxes:
    """Return the provider that the job of a test opened."""
    assert CURRENT is not None
    return CURRENT


async def tasks() -> list[Instance]:
    """A dataset of two tasks."""
    return [
        Instance(instance_id=name, problem_statement=f"{name} fails.", image="image")
        for name in TASKS
    ]


def by_turns(episode: RewardInput) -> float:
    """A reward that tells episodes apart: a tenth for each turn."""
    return len(episode.turns) / 10


def write_job(folder: Path, **spec: object) -> Path:
    """Write a job over them; its policy is never opened."""
    here = "unit.integrations.rollouts"
    job = {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        "metadata": {"name": "job"},
        "spec": {
            "dataset": {"source": {"use": f"{here}:tasks"}},
            "parallelism": 4,
            "policy": {"sglang": {"url": "http://127.0.0.1:9"}, "tokenizer": str(tokenizer_path())},
            "sandbox": {"backend": {"use": f"{here}:InMemorySandboxes"}},
            "grading": {"reward": [{"use": f"{here}:by_turns"}]},
            "agent": {"tools": ["bash", "submit", "agent"]},
            "limits": {"turns": 12, "contextTokens": 8192, "maxNewTokens": 512},
            "retry": {"attempts": 1},
            "store": {"uri": f"file://{folder}/store"},
            **spec,
        },
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path
