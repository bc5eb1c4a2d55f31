"""Offer the tools of an MCP server: `{use: mcp, with: {command: […], tools: […]}}`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from typing import Protocol

from pydantic import ValidationError

from swe_rollout.agent.tools.base import Toolset
from swe_rollout.agent.tools.face import Call, Face
from swe_rollout.agent.tools.mcp.options import McpOptions, PinnedTool, ServerTimeoutError
from swe_rollout.extension import ExtensionError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation


def mcp(**parameters: object) -> Toolset:
    """Return the tools of a server that the job pins. `McpOptions` describes the parameters.

    Raises ExtensionError for invalid parameters, or if the package mcp is missing.
    """
    return Toolset(server_tools(read_options(parameters)))


def server_tools(options: McpOptions) -> tuple[Face, ...]:
    """Return the tools of a server. Raises ExtensionError if the options list none."""
    if not options.tools:
        raise ExtensionError(
            f"the job does not list the tools of the MCP server {options.server}",
            why="a prompt is the same in all episodes, so the job pins what it offers",
            fix="`swe-rollout mcp-tools job.yaml` prints them for the job file",
        )
    server = open_server(options)
    return tuple(mcp_tool(tool, options.prefix, server) for tool in options.tools)


def read_options(parameters: Mapping[str, object]) -> McpOptions:
    """Read a job's options for a server. Raises ExtensionError with all problems."""
    try:
        options = McpOptions.model_validate(dict(parameters))
        for tool in options.tools:
            tool.spec(options.prefix)
    except ValidationError as error:
        found = [
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ")
            for each in error.errors(include_url=False)
        ]
        raise _wrong("; ".join(found[:8])) from error
    except ValueError as error:
        raise _wrong(str(error)) from error
    return options


def _wrong(why: str) -> ExtensionError:
    return ExtensionError(
        "an MCP server of the job can't be used", why=why, fix="see docs/how-to/extend/mcp.md"
    )


class Server(Protocol):
    """The interface through which tools call a server."""

    acts_outside: bool
    """Whether it runs outside of the sandbox."""

    @property
    def try_start(self) -> Callable[[Sandbox], Awaitable[None]] | None:
        """See `RunsProgram`; None if it does not run in the sandbox."""
        ...

    async def call(
        self, name: str, arguments: Mapping[str, object], sandbox: Sandbox, *, timeout_s: float
    ) -> Observation:
        """Call a tool by the server's name for it. Raises ToolError for the policy to read."""
        ...


def open_server(options: McpOptions) -> Server:
    """Return the server that the options describe, which is only started by the first call."""
    require_package()
    from swe_rollout.agent.tools.mcp import http, stdio  # noqa: PLC0415 - an extra

    return stdio.StdioServer(options) if options.command else http.HttpServer(options)


def require_package() -> None:
    """Raise ExtensionError if the package mcp is not installed."""
    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        raise ExtensionError(
            "tools of MCP servers need the package mcp, version 2",
            why="it is not installed",
            fix="pip install 'swe-rollout[mcp]'",
        )


def mcp_tool(tool: PinnedTool, prefix: str, server: Server) -> Face:
    """Return a tool of an MCP server."""

    async def act(call: Call) -> Observation:
        limit_s = call.context.timeout_s
        try:
            return await server.call(tool.name, call.arguments, call.sandbox, timeout_s=limit_s)
        except ServerTimeoutError as error:
            return Observation(f"error: {error}", timed_out=True)

    return Face(
        tool.spec(prefix),
        act,
        acts_outside=server.acts_outside,
        try_start=server.try_start,
    )
