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
    """What makes turns of tokens."""

    engine: TokenEngine
    renderer: Renderer


@dataclass(frozen=True, slots=True)
class AgentParts:
    """Engine, renderer, tools, prompts and limits: everything but the task and its sandbox."""

    engine: TokenEngine | ChatEngine
    renderer: Renderer | None
    """None for a chat engine, which has no tokens."""
    toolbox: Toolbox
    prompts: Prompts
    limits: Limits
    recording: Recording | None = None
    """Data to record beside ids and logprobs."""
    chat_format: str | None = None
    """Over a chat API, the format of calls that stand in the words of a message; None for the API's
    own calls."""

    def __post_init__(self) -> None:
        """Check once what `tokens` and `chat` rely on in every turn."""
        wanted = ChatEngine if self.renderer is None else TokenEngine
        if not isinstance(self.engine, wanted):
            raise InternalError(f"an engine of episodes is no {wanted.__name__}")

    @property
    def tokens(self) -> TokenParts:
        """Engine and renderer of episodes that have tokens. Raises InternalError for others."""
        if self.renderer is None:
            raise InternalError("an episode over a chat API was asked for tokens")
        return TokenParts(cast("TokenEngine", self.engine), self.renderer)

    @property
    def chat(self) -> ChatEngine | None:
        """The engine of episodes that have only messages; None if they have tokens."""
        return cast("ChatEngine", self.engine) if self.renderer is None else None
