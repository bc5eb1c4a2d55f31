"""Strands agents over SGLang, with exact tokens: `Agent(model=SglangModel(…))`.

    from swe_rollout.integrations.strands import SGLangClient, SglangModel

`model` is the interface to Strands, `conversation` holds the tokens, `messages` and `tools` read
Strands' data, `hooks` follow the agent's loop, and `client` is the server. Some of these names work
without Strands, so names are imported when they are used; the others say what is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from swe_rollout.errors import PrerequisiteError

if TYPE_CHECKING:
    from swe_rollout.integrations.strands.client import (
        SGLangClient,
        get_client,
        get_client_from_slime_args,
    )
    from swe_rollout.integrations.strands.exceptions import (
        HistoryError,
        SGLangClientError,
        SGLangConnectionError,
        SGLangContextLengthError,
        SGLangDecodingError,
        SGLangHTTPError,
        SGLangThrottledError,
        UnsupportedContentError,
    )
    from swe_rollout.integrations.strands.hooks import (
        LoopLimiter,
        LoopLimitReachedError,
        MaxMessagesReachedError,
        MaxToolCallsReachedError,
        MaxToolIterationsReachedError,
        ToolLimiter,
    )
    from swe_rollout.integrations.strands.model import SGLangModel, SglangModel
    from swe_rollout.integrations.strands.renderers import get_tokenizer
    from swe_rollout.integrations.strands.rollout import Rollout
    from swe_rollout.integrations.strands.tool_parsers import get_tool_parser

__all__ = [
    "HistoryError",
    "LoopLimitReachedError",
    "LoopLimiter",
    "MaxMessagesReachedError",
    "MaxToolCallsReachedError",
    "MaxToolIterationsReachedError",
    "Rollout",
    "SGLangClient",
    "SGLangClientError",
    "SGLangConnectionError",
    "SGLangContextLengthError",
    "SGLangDecodingError",
    "SGLangHTTPError",
    "SGLangModel",
    "SGLangThrottledError",
    "SglangModel",
    "ToolLimiter",
    "UnsupportedContentError",
    "get_client",
    "get_client_from_slime_args",
    "get_tokenizer",
    "get_tool_parser",
]
_MODULES = ("client", "exceptions", "renderers", "rollout", "tool_parsers", "hooks", "model")
"""The modules that define these names; only the last two need Strands."""


class StrandsMissingError(PrerequisiteError, ImportError):
    """The package strands-agents is not installed."""


def __getattr__(name: str) -> object:
    """Import a name from its module."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        modules = (import_module(f"{__name__}.{each}") for each in _MODULES)
        found: object = next(getattr(each, name) for each in modules if hasattr(each, name))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "strands":
            raise
        raise StrandsMissingError(
            f"{name} needs the package strands-agents",
            why="it is not installed",
            fix="pip install 'swe-rollout[strands]'",
        ) from error
    return found
