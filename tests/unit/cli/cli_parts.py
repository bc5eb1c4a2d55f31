"""Run the command line in this process."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from swe_rollout.cli.main import main


@dataclass(frozen=True)
class Done:
    """What a command has printed."""

    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout, as one JSON value."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line of stdout."""
        return [line.split() for line in self.out.splitlines()]


class Cli(Protocol):
    """Run `swe-rollout` with these arguments, and hold its exit code against `code`."""

    def __call__(self, *arguments: str, code: int = 0) -> Done: ...


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str, program: str = "swe-rollout") -> int:
    """Run `swe-rollout` with these arguments; its exit code."""
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    code = ended.value.code
    return code if isinstance(code, int) else 0


def without_cluster(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Let this machine name no cluster."""
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(home))
