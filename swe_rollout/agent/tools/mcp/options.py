"""A job's options for an MCP server: how to reach it, and which of its tools to offer."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.declared import DeclaredSpec, declared_spec
from swe_rollout.spec.addresses import HttpUrl
from swe_rollout.spec.bounds import Text
from swe_rollout.spec.model import Model

MAX_TOOLS = 128
_Header = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]


class ServerTimeoutError(ToolError):
    """The server did not respond within the call's time limit."""


class PinnedTool(Model):
    """A tool of the server, as the policy reads it."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    """The server's name for the tool."""
    description: str
    input_schema: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    """The JSON schema of its arguments."""

    def spec(self, prefix: str) -> DeclaredSpec:
        """Return the tool as the policy sees it. Raises ValueError if it can't be offered.

        A dot, which MCP allows in names but few call formats can write, becomes `_`.
        """
        name = prefix + self.name.replace(".", "_")
        return declared_spec(name, self.description, self.input_schema)


class McpOptions(Model):
    """An MCP server. Set `command` or `url`."""

    command: Annotated[tuple[Text, ...], Field(max_length=256)] = ()
    """Runs in the sandbox, in the repository, and speaks MCP over its stdin and stdout."""
    env: Annotated[dict[_Variable, Text], Field(max_length=64)] = Field(default_factory=dict)
    """Variables of that command. The policy can read them."""
    url: HttpUrl | None = None
    """A server beside the worker, which speaks MCP over streamable HTTP."""
    api_key_env: _Variable | None = None
    """The environment variable of the worker that holds the server's bearer token."""
    headers_env: Annotated[dict[_Header, _Variable], Field(max_length=16)] = Field(
        default_factory=dict
    )
    """Further headers, each with the environment variable of the worker that holds its value."""
    prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{0,32}$")] = ""
    """Stands in front of the tools' names: two servers may have tools of one name."""
    tools: Annotated[tuple[PinnedTool, ...], Field(max_length=MAX_TOOLS)] = ()
    """The tools that are offered, in this order. `swe-rollout mcp-tools job.yaml` prints all."""

    @model_validator(mode="after")
    def _is_one_server(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("set either command or url")
        if self.command and (self.api_key_env or self.headers_env):
            raise ValueError("apiKeyEnv and headersEnv are for url: a sandbox gets no secrets")
        if self.url and self.env:
            raise ValueError("env is for command")
        names = [tool.name for tool in self.tools]
        if len(set(names)) != len(names):
            raise ValueError("a tool is listed twice")
        for word in (*self.command, *self.env.values()):
            if "\0" in word:
                raise ValueError("a command can't hold a NUL character")
        return self

    @property
    def server(self) -> str:
        """A description of the server for people."""
        return self.url or self.command[0]
