"""An engine that keeps what it was asked, and what has to hold of an episode that it sampled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import Toolbox
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.checked import Vocabulary, checked_engine
from swe_rollout.gateway.conversations import Conversations
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.policy import Sampling
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, Generation

RENDERER: Final = Renderer.load(str(tokenizer_path()))


@dataclass(slots=True)
class Speaking(TokenEngine):
    """Samples the texts that it is told, split at each ¦, and keeps what it was asked and gave."""

    says: Callable[[], str]
    calls: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    """The branch, the ids that were sent and those that were sampled."""

    async def info(self) -> EngineInfo:
        return EngineInfo("speaking", None, None, None)

    async def generate(self, request: GenerateRequest) -> Generation:
        # Whatever a policy writes, its control tokens are single ids; its others may be any.
        backend = RENDERER.tokenizer.backend_tokenizer
        pieces = f"{self.says()}<|im_end|>".split("¦")
        said = [
            token for one in pieces for token in backend.encode(one, add_special_tokens=False).ids
        ]
        end = next(at for at, token in enumerate(said, 1) if token in request.stop_token_ids)
        ids = tuple(said[: min(end, request.max_new_tokens)])
        self.calls.append((request.branch, tuple(request.input_ids.tolist()), ids))
        stopped = ids[-1] in request.stop_token_ids
        return Generation(
            ids,
            (-0.25,) * len(ids),
            FinishReason.STOP if stopped else FinishReason.LENGTH,
            prompt_tokens=len(request.input_ids),
        )

    @property
    def sampled(self) -> int:
        """The tokens so far."""
        return sum(len(ids) for _, _, ids in self.calls)


def conversations(engine: TokenEngine, limits: Limits, number: int = 0) -> Conversations:
    """Return the conversations of one episode."""
    engine = checked_engine(engine, Vocabulary(RENDERER.vocab_size, RENDERER.special_ids))
    parts = AgentParts(engine, RENDERER, Toolbox([]), Prompts(), limits)
    return Conversations(parts, EpisodeId("gateway", "conformance", number), Sampling())


def trained(played: Conversations) -> int:
    """Return how many tokens are trained on."""
    return sum(sum(branch.loss_mask) for branch in played.branches())


def problems(played: Conversations, engine: Speaking) -> list[str]:
    """Return what does not hold of an episode."""
    branches, turns, found = played.branches(), played.episode_turns, list[str]()
    for branch, sent, ids in engine.calls:
        kept = branches[branch].token_ids
        if kept[: len(sent)] != sent or kept[len(sent) : len(sent) + len(ids)] != ids:
            found.append(f"branch {branch} does not hold a request of {len(sent)} ids")
        if any(branches[branch].loss_mask[len(sent) + at] != 1 for at in range(len(ids))):
            found.append(f"branch {branch} does not train what was sampled behind {len(sent)}")
    for turn in turns:
        start = turn.request.length
        data = np.array(branches[turn.branch].token_ids[:start], dtype="<i4").tobytes()
        if hashlib.sha256(data).hexdigest() != turn.request.sha256:
            found.append(f"turn {turn.index} has another prompt than its branch")
    if len(turns) != len(engine.calls):
        found.append(f"{len(turns)} turns of {len(engine.calls)} calls")
    if trained(played) != engine.sampled:
        found.append(f"{trained(played)} tokens are trained on, of {engine.sampled}")
    opened = {note.branch for note in played.state.differences}
    unexplained = [branch.index for branch in branches[1:] if branch.index not in opened]
    return found + [f"branch {index} was opened without a reason" for index in unexplained]
