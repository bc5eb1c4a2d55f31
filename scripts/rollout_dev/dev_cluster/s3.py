"""Start and stop a real S3 server for this checkout, on loopback, with its data in a folder."""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rollout_dev.dev_cluster import binaries
from rollout_dev.dev_cluster.checkout import SOURCES, Checkout
from rollout_dev.dev_cluster.errors import Progress, ScriptError
from rollout_dev.dev_cluster.process import Process, start_detached, tail

REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Account:
    """An access key and its secret."""

    key: str
    secret: str


_BUCKET = "rollouts"
_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_START_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Server:
    """A checkout's server, running or not; the credentials stay the same until a wipe."""

    account: Account
    port: int
    process: Process | None = None

    @property
    def alive(self) -> bool:
        """Whether the server runs."""
        return self.process is not None and self.process.alive

    @property
    def exports(self) -> str:
        """Return shell lines with the variables that S3 clients understand."""
        values = {
            "AWS_ACCESS_KEY_ID": self.account.key,
            "AWS_SECRET_ACCESS_KEY": self.account.secret,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }
        return "\n".join(f"export {name}={value}" for name, value in values.items())


def main() -> int:
    """Run one command; report errors without a traceback."""
    parser = argparse.ArgumentParser(prog="scripts/dev-s3", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start it unless it is up; print shell exports")
    up.add_argument("--bucket", default=_BUCKET, help="a bucket to create (default: %(default)s)")
    down = commands.add_parser("down", help="stop it; the data stays")
    down.add_argument("--wipe", action="store_true", help="delete data and credentials, too")
    commands.add_parser("status", help="show whether it runs; exit with 1 if not")
    commands.add_parser("env", help="print the exports again")
    arguments = parser.parse_args()
    try:
        return _run(arguments, Checkout.here().root / ".dev-s3", Progress())
    except ScriptError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def _run(arguments: argparse.Namespace, folder: Path, progress: Progress) -> int:
    match arguments.command:
        case "up":
            with _locked():
                server = _up(folder, progress)
            _create_bucket(folder, arguments.bucket)
            print(server.exports)
        case "down":
            with _locked():
                _down(folder, wipe=arguments.wipe)
            progress.say("down")
        case "env":
            print(_running(folder).exports)
        case _:  # status
            found = _read(folder)
            is_up = found is not None and found.alive
            print(f"up, 127.0.0.1:{found.port}" if found is not None and is_up else "down")
            return 0 if is_up else 1
    return 0


def _up(folder: Path, progress: Progress) -> Server:
    found = _read(folder)
    if found is not None and found.alive:
        progress.say("the server is up already")
        return found
    program = binaries.ensure(binaries.VERSITYGW, progress) / "versitygw"
    for name in ("data", "meta"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    if found is None:
        preferred = 30_000 + int(Checkout.here().digest, 16) % 2_000
        found = Server(Account(secrets.token_hex(10), secrets.token_hex(20)), preferred)
    port = _free_port(found.port)
    process = start_detached(
        [
            *(str(program), "--quiet", "--region", REGION, "--port", f"127.0.0.1:{port}"),
            # Keep metadata beside the data: some file systems have no extended attributes.
            *("posix", "--sidecar", str(folder / "meta"), str(folder / "data")),
        ],
        folder / "server.log",
        env={
            **os.environ,
            "ROOT_ACCESS_KEY": found.account.key,
            "ROOT_SECRET_KEY": found.account.secret,
        },
    )
    server = dataclasses.replace(found, port=port, process=process)
    _write(folder, server)
    _await(server, folder)
    progress.say("up")
    return server


def _create_bucket(folder: Path, bucket: str) -> None:
    """Create a bucket unless it exists: for this server, it is a folder of its data."""
    if not _BUCKET_NAME.fullmatch(bucket):
        raise ScriptError(
            f"The bucket {bucket} cannot be created.",
            fix="A bucket's name has 3 to 63 lower-case letters, digits and hyphens.",
        )
    (folder / "data" / bucket).mkdir(exist_ok=True)


def _await(server: Server, folder: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while server.alive and time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", server.port)) == 0:
                return
        time.sleep(0.05)
    raise ScriptError("The S3 server did not start.", why=tail(folder / "server.log"))


def _down(folder: Path, *, wipe: bool) -> None:
    found = _read(folder)
    if found is not None and found.process is not None:
        found.process.end(patience_seconds=5)
        _write(folder, dataclasses.replace(found, process=None))
    if wipe and folder.exists():
        shutil.rmtree(folder)


def _running(folder: Path) -> Server:
    found = _read(folder)
    if found is None or not found.alive:
        raise ScriptError("The S3 server is not up.", fix="scripts/dev-s3 up")
    return found


def _read(folder: Path) -> Server | None:
    """Read the record of the last `up`, unless it was copied from another checkout."""
    try:
        value = json.loads((folder / "server.json").read_text())
        process = Process(**value["process"]) if value["process"] else None
        found = Server(Account(**value["account"]), int(value["port"]), process)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if value.get("folder") == str(folder) else None


def _write(folder: Path, server: Server) -> None:
    path = folder / "server.json"
    path.touch(mode=0o600)  # The file holds the secret key.
    path.write_text(json.dumps({"folder": str(folder), **dataclasses.asdict(server)}))


def _free_port(preferred: int) -> int:
    for port in range(preferred, preferred + 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ScriptError(f"No free loopback port from {preferred} to {preferred + 199}.")


@contextmanager
def _locked() -> Iterator[None]:
    """Allow one `up` or `down` per checkout at a time; this is not the dev cluster's lock."""
    with (SOURCES / "s3.py").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
