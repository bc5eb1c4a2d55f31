"""`sandbox run`: one command in a fresh sandbox of an image."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.job_file import default_sandbox
from swe_rollout.cli.options import Context, Namespace, SandboxKind, option
from swe_rollout.cli.output import say
from swe_rollout.errors import UsageError
from swe_rollout.text.escaping import printable

if TYPE_CHECKING:
    from swe_rollout.sandbox.base import ExecResult
    from swe_rollout.spec.sandbox import SandboxSpec

TIMED_OUT = 124
"""Exit code if `--timeout` ended the command, as in timeout(1)."""
OUTPUT_BYTES = 32 << 20
"""Limit for printed stdout and stderr each; the rest is only counted."""
_START_S = 600.0

Image = Annotated[str, option(help="The image, such as python:3.12, or a local image's name.")]
Env = Annotated[
    list[str] | None, option("--env", "-e", metavar="K=V", help="A variable. Repeatable.")
]
Workdir = Annotated[str, option(metavar="DIR", help="The folder to start in; it must exist.")]
Timeout = Annotated[
    float, option("--timeout", min=0.1, max=86_400, metavar="SECONDS", help="For the command.")
]
Kind = Annotated[
    SandboxKind, option(help="Namespaces on this machine, Kubernetes pods, or kodo's containers.")
]
NodeSelector = Annotated[
    list[str] | None,
    option("--node-selector", metavar="K=V", help="A label of nodes, for pods. Repeatable."),
]
Stdin = Annotated[bool, option("--stdin", "-i", help="Pass standard input to the command.")]
Command = Annotated[
    list[str], typer.Argument(metavar="-- COMMAND...", help="A program and its arguments.")
]


def run(
    command: Command,
    image: Image,
    sandbox: Kind = SandboxKind.LOCAL,
    env: Env = None,
    *,
    workdir: Workdir = "/",
    timeout_s: Timeout = 600.0,
    stdin: Stdin = False,
    namespace: Namespace = None,
    context: Context = None,
    node_selector: NodeSelector = None,
) -> None:
    """Start a sandbox, run one command in it, print its output, and end the sandbox.

    The exit code is the command's own; 124 when --timeout ended it. One argument is a shell script,
    several are a program with its arguments. The sandbox is ended in every case, on ^C as well.

    swe-rollout sandbox run --image python:3.12 --sandbox pod -- python -c 'print(6 * 7)'

    swe-rollout sandbox run --image my/image:1 --workdir /testbed -- 'ls | head'
    """
    given = _Command(
        command[0] if len(command) == 1 else tuple(command),
        _pairs("--env", env or ()),
        timeout_s,
        sys.stdin.buffer.read() if stdin else b"",
    )
    spec = _spec(sandbox, namespace, context, _pairs("--node-selector", node_selector or ()))
    result = run_async(_run(spec, image, workdir, given), on_note=say)
    _print(result)
    if result.timed_out:
        say(f"ended after {timeout_s:g} s: the time was over")
        raise typer.Exit(TIMED_OUT)
    raise typer.Exit(result.exit_code)


@dataclass(frozen=True, slots=True)
class _Command:
    """A command, and how to run it."""

    command: str | tuple[str, ...]
    """A shell script, or a program with its arguments."""
    env: Mapping[str, str]
    timeout_s: float
    stdin: bytes


def _pairs(name: str, given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for each in given:
        key, separator, value = each.partition("=")
        if not key or not separator:
            raise UsageError(
                f"{name} {each!r} is not of the form K=V", fix=f"write {name} {each or 'K'}=VALUE"
            )
        pairs[key] = value
    return pairs


def _spec(
    kind: SandboxKind,
    namespace: str | None,
    context: str | None,
    nodes: Mapping[str, str],
) -> SandboxSpec:
    """Return the spec for the options. Raises UsageError for an option that `kind` lacks."""
    from pydantic import ValidationError

    from swe_rollout.spec.sandbox import KodoSandbox, PodSandbox, SandboxSpec

    if kind is SandboxKind.LOCAL and not (namespace or context or nodes):
        return default_sandbox(kind)
    try:
        match kind:
            case SandboxKind.POD:
                options: dict[str, object] = {"namespace": namespace, "context": context}
                if nodes:
                    options["template"] = {"spec": {"nodeSelector": dict(nodes)}}
                return SandboxSpec(pod=PodSandbox.model_validate(options))
            case SandboxKind.KODO if context is None:
                named = {} if namespace is None else {"namespace": namespace}
                kodo = {"node_selector": dict(nodes), **named}
                return SandboxSpec(kodo=KodoSandbox.model_validate(kodo))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UsageError(f"a {kind} sandbox can't be made of these options", why=why) from error
    raise UsageError(
        f"a {kind} sandbox has no such option",
        why="--namespace and --node-selector are for pods and kodo, --context is for pods",
    )


async def _run(spec: SandboxSpec, image: str, workdir: str, given: _Command) -> ExecResult:
    from swe_rollout.worker.standalone import Wanted, open_sandbox

    # The user's own command is harmless: they could run it without a sandbox.
    wanted = Wanted(image, workdir, lifetime_s=given.timeout_s + _START_S, harmless=True)
    async with open_sandbox(spec, wanted, on_note=say) as sandbox:
        return await sandbox.exec(
            given.command,
            env=given.env,
            stdin=given.stdin,
            timeout_s=given.timeout_s,
            max_output=OUTPUT_BYTES,
        )


def _print(result: ExecResult) -> None:
    """Print the output verbatim, but on a terminal with control characters made visible."""
    streams = (
        ("stdout", sys.stdout, result.stdout, result.stdout_bytes),
        ("stderr", sys.stderr, result.stderr, result.stderr_bytes),
    )
    for name, stream, data, written in streams:
        if stream.isatty():
            stream.write(printable(data.decode(errors="replace")))
        else:
            stream.flush()
            stream.buffer.write(data)
        stream.flush()
        if written > len(data):
            say(f"… {written - len(data)} more bytes of {name} were not kept")
