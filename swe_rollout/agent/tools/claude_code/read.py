"""The `Read` tool: numbered lines of a text file, a page at a time, and where the next one begins.

A file of moderate size is fetched whole; of a larger one only the lines asked for are.
"""

from __future__ import annotations

from dataclasses import dataclass

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError, ToolSpec
from swe_rollout.agent.tools.claude_code.call import Call, ClaudeCodeTool
from swe_rollout.agent.tools.claude_code.files import MAX_FILE_BYTES, find, need_file
from swe_rollout.agent.tools.claude_code.text import numbered, page, split_lines
from swe_rollout.agent.tools.paths import PathInfo

PAGE_BYTES = 256 << 10
_PAGE_LINES = 2000
_MAX_LINES = 100_000
_HEAD_BYTES = 8192
_LINES = 'tail -n "+$2" -- "$1" | head -n "$3" | head -c "$4"'
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a WebP image or a media file"),
    (b"BM", "a BMP image"),
)


class Read(ClaudeCodeTool):
    """Shows a text file with line numbers."""

    def __init__(self, name: str = "Read") -> None:
        """Offer the tool under `name`."""
        super().__init__(
            ToolSpec(
                name,
                f"Read a text file with line numbers: up to {_PAGE_LINES} lines from offset on. "
                "What does not fit is named, with the offset that goes on there.",
                (
                    Parameter("file_path", "The file, such as src/module.py.", required=True),
                    Parameter("offset", "The first line, from 1.", ParameterType.INTEGER),
                    Parameter("limit", "How many lines.", ParameterType.INTEGER),
                ),
            )
        )

    async def call(self, call: Call) -> str:
        first = call.integer("offset") or 1
        count = call.integer("limit", least=1) or _PAGE_LINES
        info = await find(call, "file_path")
        await need_file(call, info)
        window = await _window(call, info, first, min(count, _PAGE_LINES))
        return await off_loop(_shown, info, window, call.context.output_bytes)


@dataclass(frozen=True, slots=True)
class _Window:
    """Lines of a file from `first` on."""

    first: int
    lines: list[bytes]
    total: int | None
    """Lines of the whole file; none: unknown, because it is large."""
    more: bool
    """Whether lines follow."""


async def _window(call: Call, info: PathInfo, first: int, count: int) -> _Window:
    if info.size_bytes <= MAX_FILE_BYTES:
        data = await call.sandbox.read_file(info.path)
        _check_text(info, data)
        total = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
        if total <= _MAX_LINES and len(data) <= MAX_FILE_BYTES:
            lines = await off_loop(split_lines, data)
            if first > total and data:
                raise ToolError(f"{info.path} ends with line {total}; offset is beyond it")
            end = first - 1 + count
            return _Window(first, lines[first - 1 : end], total, end < total)
    return await _large_window(call, info, first, count)


async def _large_window(call: Call, info: PathInfo, first: int, count: int) -> _Window:
    """Fetch the lines alone: of more lines, or bytes, than should be held here."""
    script = ["/bin/sh", "-c", _LINES, "sh", info.path]
    # One more than asked for shows whether there are more.
    bounds = [str(first), str(count + 1), str(PAGE_BYTES)]
    result = await call.sandbox.exec([*script, *bounds], timeout_s=call.remaining_s)
    if result.timed_out:
        raise ToolError(f"{info.path} has {info.size_bytes} bytes: reading took too long")
    if not result.stdout:
        raise ToolError(f"{info.path} has no line {first}, or can't be read")
    _check_text(info, result.stdout)
    lines = await off_loop(split_lines, result.stdout)
    is_cut = len(result.stdout) >= PAGE_BYTES
    if is_cut and len(lines) > 1:
        lines.pop()
    return _Window(first, lines[:count], None, is_cut or len(lines) > count)


def _check_text(info: PathInfo, data: bytes) -> None:
    head = data[:_HEAD_BYTES]
    if b"\0" not in head:
        return
    for magic, kind in _IMAGES:
        if head.startswith(magic):
            raise ToolError(f"{info.path} is {kind}; only text can be shown here")
    raise ToolError(f"{info.path} is a binary file of {info.size_bytes} bytes: it holds NUL bytes")


def _shown(info: PathInfo, window: _Window, limit: int) -> str:
    if not window.lines:
        return f"{info.path} is empty"
    shown = page(numbered(window.lines, window.first), min(limit, PAGE_BYTES))
    last = window.first + len(shown.lines) - 1
    if not window.more and len(shown.lines) == len(window.lines):
        return shown.text
    of = f"of {window.total}" if window.total is not None else f"({info.size_bytes} bytes in all)"
    return (
        f"{shown.text}\n[lines {window.first} to {last} {of}; go on with offset {last + 1}, or "
        "search with Grep]"
    )
