"""Strands agents over SGLang, with exact tokens: `Agent(model=SglangModel(…))`.

    from swe_rollout.integrations.strands import SGLangClient, SglangModel

`model` is the face to Strands, `conversation` holds the tokens, `messages` and `tools` read what
Strands gives, `loop` and `limits` are hooks of the agent, `client` is the server. Names are
imported when they are used; those that need Strands say so where it is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from swe_rollout.errors import PrerequisiteError
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
from swe_rollout.integrations.strands.limits import (
    LoopLimiter,
    LoopLimitReachedError,
    MaxMessagesReachedError,
    MaxToolCallsReachedError,
    MaxToolIterationsReachedError,
    ToolLimiter,
)
from swe_rollout.integrations.strands.model import SglangModel
from swe_rollout.integrations.strands.renderers import get_tokenizer
from swe_rollout.integrations.strands.rollout import Rollout
from swe_rollout.integrations.strands.tool_parsers import get_tool_parser

if TYPE_CHECKING:
    SGLangModel = SglangModel

_NAMES = {
    "client": ("SGLangClient", "get_client", "get_client_from_slime_args"),
    "exceptions": (
        "HistoryError",
        "SGLangClientError",
        "SGLangConnectionError",
        "SGLangContextLengthError",
        "SGLangDecodingError",
        "SGLangHTTPError",
        "SGLangThrottledError",
        "UnsupportedContentError",
    ),
    "limits": (
        "LoopLimiter",
        "LoopLimitReachedError",
        "MaxMessagesReachedError",
        "MaxToolCallsReachedError",
        "MaxToolIterationsReachedError",
        "ToolLimiter",
    ),
    "model": ("SglangModel",),
    "renderers": ("get_tokenizer",),
    "rollout": ("Rollout",),
    "tool_parsers": ("get_tool_parser",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
_OTHER_NAMES = {"SGLangModel": "SglangModel"}
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


class StrandsMissingError(PrerequisiteError, ImportError):
    """The package strands-agents is not installed."""


def __getattr__(name: str) -> object:
    """Import a name from its module."""
    own = _OTHER_NAMES.get(name, name)
    if own not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_HOMES[own]}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "strands":
            raise
        raise StrandsMissingError(
            f"{name} needs the package strands-agents",
            why="it is not installed",
            fix="pip install 'swe-rollout[strands]'",
        ) from error
    found: object = getattr(module, own)
    return found
