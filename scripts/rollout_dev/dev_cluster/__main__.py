"""Start and stop a Kubernetes cluster for this checkout, on this machine."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rollout_dev.dev_cluster import binaries, kind, native
from rollout_dev.dev_cluster.binaries import KUBE
from rollout_dev.dev_cluster.checkout import SOURCES, Checkout
from rollout_dev.dev_cluster.errors import PREREQUISITE, Progress, ScriptError
from rollout_dev.dev_cluster.kind import load_images, running_kind
from rollout_dev.dev_cluster.network import NODE_ADDRESS
from rollout_dev.dev_cluster.process import Kind, read_record


def main() -> int:
    """Run one command; report errors without a traceback."""
    arguments = _parser().parse_args()
    try:
        _run(arguments, Checkout.here(), Progress())
    except ScriptError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except PermissionError as error:
        sys.stderr.write(f"{error}\n  why: the native cluster belongs to root.\n  fix: use sudo.\n")
        return PREREQUISITE
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/dev-cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start it unless it is up; print the kubeconfig")
    down = commands.add_parser("down", help="stop it; etcd and images stay for the next `up`")
    for command in (up, down):
        command.add_argument("--wipe", action="store_true", help="delete its content")
    how = up.add_mutually_exclusive_group()
    how.add_argument("--native", action="store_true", help="as plain processes, even with Docker")
    how.add_argument("--kind", action="store_true", help="in kind, or fail")
    status = commands.add_parser("status", help="show its components; exit with 1 if it is down")
    status.add_argument("-o", "--output", choices=("text", "json"), default="text")
    load = commands.add_parser("load-image", help="import docker-archives")
    load.add_argument("archive", nargs="+", type=Path)
    execute = commands.add_parser("exec", help="run a command in the cluster's network")
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD …")
    forward = commands.add_parser(
        "forward", help="make a loopback port of this machine reachable for pods"
    )
    forward.add_argument("port", type=int)
    commands.add_parser("kubeconfig", help="print the kubeconfig's path")
    commands.add_parser("build", help="only build the programs, and the S3 server's")
    return parser


def _run(arguments: argparse.Namespace, checkout: Checkout, progress: Progress) -> None:
    match arguments.command:
        case "up":
            _up(arguments, checkout, progress)
        case "down":
            with _locked(checkout):
                _down(checkout, progress, wipe=arguments.wipe)
        case "status":
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it; it changes nothing
            _status(checkout, as_json=arguments.output == "json")
        case "load-image":
            load_images(checkout, arguments.archive, progress)
        case "exec":
            native.execute(checkout, _command_words(arguments.argv))
        case "forward":
            with _locked(checkout):
                print(native.forward(checkout, arguments.port, progress))
        case "kubeconfig":
            running_kind(checkout)
            print(checkout.kubeconfig)
        case _:  # build
            binaries.ensure_cluster(progress)
            for group in (*binaries.CLUSTER, binaries.VERSITYGW):
                print(binaries.ensure(group, progress))


def _up(arguments: argparse.Namespace, checkout: Checkout, progress: Progress) -> None:
    with _locked(checkout):
        if arguments.wipe:
            _down(checkout, progress, wipe=True)
            checkout.state.mkdir()
        match _wanted_kind(arguments, checkout):
            case Kind.KIND:
                kind.up(checkout, progress)
            case Kind.NATIVE:
                native.up(checkout, progress)
                _offer_kubectl(checkout)
        progress.say("up")
    print(f"export KUBECONFIG={checkout.kubeconfig}")


def _offer_kubectl(checkout: Checkout) -> None:
    """Offer the cluster's own kubectl on PATH if the machine has none."""
    if shutil.which("kubectl"):
        return
    shim = checkout.state / "bin" / "kubectl"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(str(KUBE.folder / "kube"))} kubectl "$@"\n')
    shim.chmod(0o755)
    print(f'export PATH={shlex.quote(str(shim.parent))}:"$PATH"')


def _wanted_kind(arguments: argparse.Namespace, checkout: Checkout) -> Kind:
    """Return the kind from the flags, else of the running cluster, else one that works here."""
    requested = Kind.KIND if arguments.kind else Kind.NATIVE if arguments.native else None
    found = read_record(checkout)
    if found is not None and (found.kind is Kind.KIND or found.alive):
        if requested not in (None, found.kind):
            raise ScriptError(
                f"The {found.kind} cluster of this checkout is up.",
                why="a checkout has one cluster at a time.",
                fix="scripts/dev-cluster down",
            )
        return found.kind
    if requested is Kind.KIND and not kind.docker_responds():
        raise ScriptError(
            "kind needs Docker.",
            why="`docker info` gets no response from an engine.",
            fix="Start Docker, or run `scripts/dev-cluster up --native` as root.",
            exit_code=PREREQUISITE,
        )
    return requested or (Kind.KIND if kind.docker_responds() else Kind.NATIVE)


def _down(checkout: Checkout, progress: Progress, *, wipe: bool) -> None:
    found = read_record(checkout)
    if found is not None and found.kind is Kind.KIND:
        kind.down(checkout)
    else:
        native.down(checkout, progress)
    if wipe:
        shutil.rmtree(checkout.state)
    progress.say("down")


def _status(checkout: Checkout, *, as_json: bool) -> None:
    found = read_record(checkout)
    is_kind = found is not None and found.kind is Kind.KIND
    is_up = found is not None and (kind.exists(checkout) if is_kind else found.alive)
    native_up = found is not None and is_up and not is_kind
    state = {
        "state": "up" if is_up else "down",
        "kind": str(found.kind) if found is not None else None,
        "kubeconfig": str(checkout.kubeconfig),
        "server": found.server if found is not None and native_up else None,
        "namespace": native.network_namespace(checkout) if native_up else None,
        "node_address": NODE_ADDRESS if native_up else None,
        "components": {} if is_kind else native.component_pids(checkout),
    }
    print(json.dumps(state, indent=2) if as_json else _as_text(state))
    if not is_up:
        raise SystemExit(1)


def _as_text(state: Mapping[str, object]) -> str:
    lines = []
    for key, value in state.items():
        if isinstance(value, dict):
            lines += [f"{name:26}{pid or 'not running'}" for name, pid in value.items()]
        elif value is not None:
            lines.append(f"{key:26}{value}")
    return "\n".join(lines)


def _command_words(words: list[str]) -> list[str]:
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise ScriptError("No command.", fix="scripts/dev-cluster exec -- CMD …", exit_code=2)
    return command


@contextmanager
def _locked(checkout: Checkout) -> Iterator[None]:
    """Allow one `up`, `down` or `forward` per checkout at a time."""
    # Lock a folder of the sources, because `--wipe` removes the state folder.
    folder = os.open(SOURCES, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        checkout.state.mkdir(exist_ok=True)
        yield
    finally:
        os.close(folder)


if __name__ == "__main__":
    sys.exit(main())
