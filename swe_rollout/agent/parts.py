"""The parts that the agents of all episodes of a job share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import Toolbox
from swe_rollout.engine.base import TokenEngine
from swe_rollout.engine.chat.base import ChatEngine
from swe_rollout.errors import InternalError
from swe_rollout.spec.limits import Limits
from swe_rollout.tokens.replay import Recording


class TokenParts(NamedTuple):
    """The parts that produce turns of tokens."""

    engine: TokenEngine
    renderer: Renderer


@dataclass(frozen=True, slots=True)
class AgentParts:
    """Engine, renderer, tools, prompts and limits: everything but the task and its sandbox."""

    engine: TokenEngine | ChatEngine
    renderer: Renderer | None
    """The token path; None for a chat engine, which has no tokens."""
    toolbox: Toolbox
    prompts: Prompts
    limits: Limits
    recording: Recording | None = None
    """Data to record in addition to ids and logprobs."""
    chat_format: str | None = None
    """The format of calls within a chat API's message text; None if the API has its own calls."""

    def __post_init__(self) -> None:
        """Check, once, what `tokens` and `chat` rely on in every turn."""
        wanted = ChatEngine if self.renderer is None else TokenEngine
        if not isinstance(self.engine, wanted):
            raise InternalError(f"an engine of episodes is no {wanted.__name__}")

    @property
    def tokens(self) -> TokenParts:
        """Engine and renderer of episodes with tokens. Raises InternalError for other episodes."""
        if self.renderer is None:
            raise InternalError("an episode over a chat API was asked for tokens")
        return TokenParts(cast("TokenEngine", self.engine), self.renderer)

    @property
    def chat(self) -> ChatEngine | None:
        """The chat engine of episodes that have only messages; None if they have tokens."""
        return cast("ChatEngine", self.engine) if self.renderer is None else None
