"""`engine status`, `engine update-weights` and `engine serve-scripted`.

The first two talk to the servers themselves: routers do not forward such requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.options import Form, Globs, OutputFormat, option
from swe_rollout.cli.output import say, show_error, write_data, write_lines, write_table
from swe_rollout.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    from swe_rollout.engine.sglang.control import WeightUpdate, WeightUpdateResult

Urls = Annotated[
    list[str], typer.Argument(metavar="URL...", help="The servers, such as http://sglang-0:30000.")
]
KeyVariable = Annotated[
    str | None,
    option("--api-key-env", help="Environment variable that holds the servers' API key."),
]
ModelPath = Annotated[str, option(help="Folder with the weights, as the servers see it.")]
Version = Annotated[str, option(help="Version recorded with tokens sampled from these weights.")]
Mode = Annotated[
    str,
    option(help="How to treat running generations: abort, in_place (keep old cache) or retract."),
]
DatasetOption = Annotated[
    str, option("--dataset", help="release-pairs, a file of rows, or a job.yaml.")
]
Scenarios = Annotated[str, option(help="Names of scenarios, comma-separated; sample k plays k.")]
Tokenizer = Annotated[
    str | None, option(help="A folder or a hub name. Default: the small built-in tokenizer.")
]
Host = Annotated[str, option(help="Address to listen on.")]
Port = Annotated[int, option(min=0, max=65535, help="0: any free port.")]
ContextTokens = Annotated[
    int, option(min=16, max=2**24, help="Context length: prompt and completion.")
]

FAILED = 1
UNREACHABLE = 4


@dataclass(frozen=True, slots=True)
class _ServerRow:
    """The state of one server."""

    url: str
    state: str
    """`ready`, `paused` or `down`."""
    requests: int | None = None
    model: str | None = None
    weight_version: str | None = None
    context_tokens: int | None = None
    why: str | None = None
    """Why it is down."""


def status(
    urls: Urls, api_key_env: KeyVariable = None, *, output: Form = OutputFormat.TABLE
) -> None:
    """Show the state of servers (ready, paused or down), their load, weights and model.

    Exit 4 when one of them is down.

    swe-rollout engine status http://sglang-0:30000 http://sglang-1:30000

    swe-rollout engine status http://sglang:30000 -o wide
    """
    rows = asyncio.run(_query_all(urls, api_key_env))
    if output.is_data:
        write_data({"engines": [asdict(row) for row in rows]}, output)
    else:
        columns = ("URL", "STATE", "REQUESTS#", "WEIGHTS", "CONTEXT#+", "MODEL")
        write_table(columns, map(_cells, rows), output)
    down = [row for row in rows if row.state == "down"]
    for row in down:
        say(f"{row.url}: {row.why}")
    if down:
        say("start the server, or name its root: http://HOST:PORT, without /v1 and /generate")
        raise typer.Exit(UNREACHABLE)


def update_weights(
    urls: Urls,
    model_path: ModelPath,
    version: Version,
    mode: Mode = "retract",
    api_key_env: KeyVariable = None,
) -> None:
    """Load new weights into servers: pause each one, load, and resume, even after an error.

    Running episodes keep every token they sampled, with the version of the weights it came from.
    Exit 1 when a server did not load the weights.

    swe-rollout engine update-weights http://sglang-0:30000 --model-path /ckpt/120 --version v120

    swe-rollout engine update-weights http://sglang:30000 --model-path /c/9 --version 9 --mode abort
    """
    from swe_rollout.engine.sglang.control import PauseMode, WeightUpdate

    try:
        update = WeightUpdate(model_path, version, PauseMode(mode))
    except ValueError as error:
        raise UsageError(f"there is no mode {mode!r}", fix="abort, in_place or retract") from error
    addresses = [url.rstrip("/") for url in urls]
    results = run_async(_update_all(addresses, update, api_key_env), on_note=say)
    write_lines(f"{result.url} {version}" for result in results if result.error is None)
    failures = [result.error for result in results if result.error is not None]
    for failure in failures:
        show_error(failure)
    if failures:
        raise typer.Exit(FAILED)


def serve_scripted(
    dataset: DatasetOption = "release-pairs",
    include: Globs = None,
    scenarios: Scenarios = "gold,wrong,malformed,loop",
    tokenizer: Tokenizer = None,
    *,
    context_tokens: ContextTokens = 32768,
    host: Host = "127.0.0.1",
    port: Port = 0,
) -> None:
    """Serve scripted policies through SGLang's API: jobs reach them with the real client.

    Prints the address on stdout once the server accepts requests.

    swe-rollout engine serve-scripted --scenarios gold,wrong --port 30000

    swe-rollout engine serve-scripted --include 'sqlparse-*' --host 0.0.0.0
    """
    from swe_rollout.agent.renderer import Renderer
    from swe_rollout.cli.dataset_argument import named_dataset
    from swe_rollout.engine.scripted.engine import ScriptedEngine
    from swe_rollout.engine.scripted.scenarios import scenario
    from swe_rollout.engine.scripted.server import serve
    from swe_rollout.spec.policy import ScriptedPolicy
    from swe_rollout.testing.tiny import tokenizer_path

    named = named_dataset(dataset, include=include or ())
    names = [scenario(name.strip()).name for name in scenarios.split(",")]

    async def work() -> None:
        instances = await named.load()
        name = tokenizer or str(tokenizer_path())
        engine = ScriptedEngine(
            ScriptedPolicy.model_validate({"scenarios": tuple(names)}),
            instances,
            name,
            tool_format=Renderer.load(name).tool_format,
            context_tokens=context_tokens,
        )
        await serve(engine, host=host, port=port, on_ready=lambda url: write_lines([url]))

    run_async(work(), on_note=say)


async def _update_all(
    urls: Sequence[str], update: WeightUpdate, api_key_env: str | None
) -> tuple[WeightUpdateResult, ...]:
    from swe_rollout.engine.sglang.control import EngineControl, update_weights_on

    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(EngineControl(url, api_key_env=api_key_env))
            for url in urls
        ]
        return await update_weights_on(engines, update)


async def _query_all(urls: Sequence[str], api_key_env: str | None) -> list[_ServerRow]:
    return await asyncio.gather(*(_query(url.rstrip("/"), api_key_env) for url in urls))


async def _query(url: str, api_key_env: str | None) -> _ServerRow:
    from swe_rollout.engine.errors import EngineLostError
    from swe_rollout.engine.pool.probe import HealthProbe
    from swe_rollout.engine.sglang.connection import CONNECT_S
    from swe_rollout.engine.sglang.engine import SglangEngine
    from swe_rollout.spec.policy import SglangPolicy

    probe = HealthProbe(url, api_key_env=api_key_env, timeout_s=CONNECT_S)
    engine = SglangEngine(SglangPolicy(url=url, api_key_env=api_key_env), vocab_size=1)
    try:
        state = (await probe.check()).value
        info = await engine.info()
        return _ServerRow(
            url=url,
            state=state,
            requests=await probe.count_calls(),
            model=info.model,
            weight_version=info.weight_version,
            context_tokens=info.context_tokens,
        )
    except (EngineLostError, UnreachableError) as error:
        return _ServerRow(url, "down", why=str(error))
    finally:
        await probe.aclose()
        await engine.aclose()


def _cells(row: _ServerRow) -> tuple[str, ...]:
    values = (row.requests, row.weight_version, row.context_tokens, row.model)
    return (row.url, row.state, *("–" if each is None else str(each) for each in values))
