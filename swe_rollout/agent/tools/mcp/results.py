"""Turn the result of an MCP tool into text for the policy."""

from __future__ import annotations

import json
from typing import Final

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from swe_rollout.types.turn import Observation

MAX_BLOCKS: Final = 1000
"""Maximum pieces of content that are read."""


def observation(result: CallToolResult) -> Observation:
    """Return the observation: texts unchanged, and the kind and size of any other content.

    Structured content is shown only if there is no other, because servers repeat it as text.
    """
    parts = [_described(block) for block in result.content[:MAX_BLOCKS]]
    if more := len(result.content) - len(parts):
        parts.append(f"[... {more} more pieces of content, not shown ...]")
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(parts) or "(no output)"
    return Observation(f"error: {text}" if result.is_error else text)


def _described(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return f"[{block.type}: {block.mime_type[:80]}, {_size(block.data)} bytes, not shown]"
        case ResourceLink():
            return f"[resource: {block.uri}]"
        case EmbeddedResource():
            return _embedded(block.resource)


def _embedded(resource: TextResourceContents | BlobResourceContents) -> str:
    if isinstance(resource, TextResourceContents):
        return f"[resource: {resource.uri}]\n{resource.text}"
    return f"[resource: {resource.uri}, {_size(resource.blob)} bytes, not shown]"


def _size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")
