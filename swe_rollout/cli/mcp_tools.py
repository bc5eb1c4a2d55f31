"""`mcp-tools`: ask the MCP servers of a job what they offer, for the job file."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from mcp_types import Tool

from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.job_file import in_sandbox, overrides_of
from swe_rollout.cli.options import File, SandboxChoice, Sets, SkipBadRows
from swe_rollout.cli.output import say, write_lines
from swe_rollout.errors import UnreachableError, UsageError
from swe_rollout.types.episode import EpisodeId

if TYPE_CHECKING:
    from swe_rollout.agent.tools.mcp.options import McpOptions
    from swe_rollout.spec.job import RolloutJob

_TIMEOUT_S = 120.0


def mcp_tools(
    file: File,
    sandbox: SandboxChoice = None,
    sets: Sets = None,
    *,
    skip_bad_rows: SkipBadRows = False,
) -> None:
    """Print the tools that the MCP servers of a job offer, as YAML for its `spec.agent.tools`.

    A server with a command is started in a sandbox of the job's first task. Select the tools for
    the policy, review their descriptions, and put them into the job file. Exit 1 when a tool can't
    be offered to a policy.

    swe-rollout mcp-tools job.yaml

    swe-rollout mcp-tools job.yaml --set spec.samples=1 --sandbox local
    """
    import yaml

    from swe_rollout.spec.load import load_job

    overrides = overrides_of(sets, store=None, name=None, skip_bad_rows=skip_bad_rows)
    job = load_job(file, overrides)
    if sandbox is not None:
        job = in_sandbox(job, sandbox)
    tools, problems = run_async(_pinned(job, file.absolute().parent), on_note=say)
    text = yaml.safe_dump({"tools": tools}, sort_keys=False, allow_unicode=True, width=96)
    write_lines(text.splitlines())
    for problem in problems:
        say(f"left out: {problem}")
    if problems:
        raise typer.Exit(1)


async def _pinned(job: RolloutJob, base_dir: Path) -> tuple[list[object], list[str]]:
    """Return the job's tools, including those of its servers, and what was omitted."""
    from swe_rollout.agent.tools.mcp.tool import read_options, require_package

    require_package()
    from swe_rollout.agent.tools.mcp.pin import pinned

    uses = job.spec.agent.tools
    if not any(use.use == "mcp" for use in uses):
        raise UsageError(
            "the job names no MCP server", fix="add {use: mcp, with: {command: […]}} to agent.tools"
        )
    tools: list[object] = []
    problems: list[str] = []
    for use in uses:
        written = use.model_dump(mode="json", by_alias=True)
        if use.use == "mcp":
            options = read_options({**use.with_, "tools": []})
            found, left_out = pinned(await _listed(options, job, base_dir), options.prefix)
            rest = written if isinstance(written, dict) else {"use": use.use}
            written = {**rest, "with": {**use.with_, "tools": found}}
            problems += left_out
        tools.append(written)
    return tools, problems


async def _listed(options: McpOptions, job: RolloutJob, base_dir: Path) -> tuple[Tool, ...]:
    from swe_rollout.agent.tools.base import ToolError
    from swe_rollout.agent.tools.mcp.http import HttpServer, ToolServerError

    try:
        if options.url:
            return await HttpServer(options).tools(timeout_s=_TIMEOUT_S)
        return await _listed_in_sandbox(options, job, base_dir)
    except ToolServerError as error:
        raise UnreachableError(error.what, why=error.why, fix=error.fix) from error
    except ToolError as error:
        raise UnreachableError(
            f"the MCP server {options.server} does not list its tools",
            why=str(error),
            fix="the image of the job's tasks must hold the command"
            if options.command
            else "look at the server's own log",
        ) from error


async def _listed_in_sandbox(
    options: McpOptions, job: RolloutJob, base_dir: Path
) -> tuple[Tool, ...]:
    from swe_rollout.agent.tools.mcp.stdio import StdioServer
    from swe_rollout.datasets.base import load
    from swe_rollout.sandbox.base import Role, SandboxRequest
    from swe_rollout.worker.sandboxes import SandboxSetup, open_sandboxes

    first = (await load(job.spec.dataset, base_dir=base_dir, on_progress=say)).instances[0]
    async with AsyncExitStack() as stack:
        setup = SandboxSetup([first], job.metadata.name, say, harmless=True)
        provider = open_sandboxes(job.spec.sandbox, setup, stack)
        episode = EpisodeId(job.metadata.name, first.instance_id, 0)
        sandbox = await provider.start(
            SandboxRequest(episode, Role.AGENT, first.image, first.workdir, deadline_s=600.0)
        )
        stack.push_async_callback(sandbox.close)
        return await StdioServer(options).tools(sandbox, timeout_s=_TIMEOUT_S)
