"""Stand in front of the engine, the store or the API server, and break connections by rules.

    python -m rollout_dev.faults.relay LISTEN:HOST:PORT …

The file /tmp/rules-PORT holds the rules of the listener on a port, as the name of a `Fault`; it is
read several times a second, so that `kubectl exec` can change them. The relays of engine and store
run in pods. The API server's runs on the node (`api_relay`), with --rules and --tls.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import ssl
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from rollout_dev.faults.fault_proxy import (
    AcceptMode,
    CutError,
    FaultProxy,
    FaultRules,
    ProxiedConnection,
    TlsEnds,
)

_RULES: Final = Path("/tmp")  # noqa: S108 - the only writable folder of a pod
_POLL_S: Final = 0.1
_CUT_CHANCE: Final = 0.01
"""The chance that a poll cuts an open connection."""
_ERROR_CHANCE: Final = 0.05
_ERROR: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)


class Fault(StrEnum):
    """What a relay does to all its connections."""

    NONE = "none"
    REFUSED = "refused"
    """New connections are reset, and the open ones once."""
    SILENT = "silent"
    """Nothing passes in either direction; nothing is lost."""
    SLOW = "slow"
    """Each piece of data takes half a second, in either direction."""
    FLAKY = "flaky"
    """Open connections are reset at random, about one in a hundred each tenth of a second."""
    ERRORS = "errors"
    """One response in twenty is a 503, whatever the server did."""


RULES: Final = {
    Fault.REFUSED: FaultRules(accept=AcceptMode.REFUSED),
    Fault.SILENT: FaultRules(stalled=True),
    Fault.SLOW: FaultRules(delay_s=0.5),
}


class RandomErrors:
    """Replaces some responses of a connection by errors; the connection ends after one."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._is_over = False
        self.is_on = False

    def filter(self, data: bytes) -> bytes:
        """Return the piece of a response, or an error in place of one that begins."""
        if self._is_over:
            raise CutError
        if self.is_on and data.startswith(b"HTTP/1.") and self._rng.random() < _ERROR_CHANCE:
            self._is_over = True
            return _ERROR
        return data


class Relay(FaultProxy):
    """A proxy whose connections may have random errors."""

    has_errors = False

    async def connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[ProxiedConnection, asyncio.StreamReader]:
        """Connect a new client to the server; `has_errors` switches its errors on and off."""
        connection, from_server = await super().connect(reader, writer)
        errors = RandomErrors(random.Random())  # noqa: S311 - no secret
        errors.is_on = self.has_errors
        connection.to_client = errors
        return connection, from_server


def rules_file(port: int, folder: Path = _RULES) -> Path:
    """Return the path of the file with the rules of the relay on a port."""
    return folder / f"rules-{port}"


def tls_ends(folder: Path) -> TlsEnds:
    """Return the TLS contexts for the dev cluster's keys: the API server's own, and its CA."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "apiserver.crt", folder / "apiserver.key")
    return TlsEnds(server, ssl.create_default_context(cafile=folder / "ca.crt"))


async def _serve(address: str, rules: Path, tls: TlsEnds | None) -> None:
    port, host, to_port = address.split(":")
    listen = ("0.0.0.0", int(port))  # noqa: S104 - of a pod, or of the dev cluster's network
    current = Fault.NONE
    async with Relay(host, int(to_port), listen=listen, tls=tls) as proxy:
        while True:
            await asyncio.sleep(_POLL_S)
            asked = _asked(rules_file(int(port), rules))
            if asked is not current:
                current = asked
                proxy.rules = RULES.get(asked, FaultRules())
                proxy.has_errors = asked is Fault.ERRORS
                if asked in {Fault.REFUSED, Fault.ERRORS}:
                    proxy.cut()
            if current is Fault.FLAKY:
                for connection in proxy.connections:
                    if random.random() < _CUT_CHANCE:  # noqa: S311 - no secret
                        connection.cut()


def _asked(file: Path) -> Fault:
    try:
        return Fault(file.read_text().strip())
    except (OSError, ValueError):
        return Fault.NONE


async def _main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("addresses", nargs="+", metavar="LISTEN:HOST:PORT")
    parser.add_argument("--rules", type=Path, default=_RULES, metavar="FOLDER")
    parser.add_argument("--tls", type=Path, metavar="FOLDER", help="of the dev cluster's keys")
    given = parser.parse_args(arguments)
    tls = tls_ends(given.tls) if given.tls else None
    async with asyncio.TaskGroup() as group:
        for each in given.addresses:
            group.create_task(_serve(each, given.rules, tls))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
