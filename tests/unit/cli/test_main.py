"""The command line as a whole: help, exit codes, and unexpected errors."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import swe_rollout
from checkout import ROOT
from ratios import cpu_s
from swe_rollout.cli.main import EXIT_CODES
from unit.cli.cli_parts import Cli, run_cli


def test_kubectls_plugin_names_itself_as_kubectl_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "launch", "--help", program="kubectl-swe_rollout") == 0

    usage, _, rest = capsys.readouterr().out.partition("swe-rollout")
    assert usage.split() == ["Usage:", "kubectl"]
    assert "swe-rollout launch" in rest


def test_help_lists_the_exit_codes(cli: Cli) -> None:
    words = cli("--help").out.split()
    assert EXIT_CODES.split() == words[-len(EXIT_CODES.split()) :]


@pytest.mark.parametrize(
    ("arguments", "most"), [(("--help",), 5.5), (("explain", "spec"), 18.0)], ids=["help", "spec"]
)
def test_it_starts_in_a_few_times_what_python_takes_itself(
    arguments: tuple[str, ...], most: float
) -> None:
    """When this was written: 2.6 times, and 8.3. Three times as much fails."""
    floor = cpu_s("-c", "import argparse, asyncio, dataclasses, json, typing")
    assert cpu_s("-m", "swe_rollout.cli.main", *arguments) / floor < most


def test_modules_of_the_command_line_do_not_import_each_other_in_a_circle() -> None:
    """Imports inside functions hide circles from Python, so they count here too."""
    folder = ROOT / "swe_rollout" / "cli"
    imports = {path.stem: _imported(path) for path in folder.glob("*.py")}

    while leaves := [name for name, needed in imports.items() if not needed & imports.keys()]:
        for leaf in leaves:
            del imports[leaf]

    assert imports == {}


def _imported(path: Path) -> set[str]:
    """The modules of the same package that a module imports, anywhere in it."""
    package = "swe_rollout.cli"
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module="swe_rollout.cli", names=names):
                found |= {name.name for name in names}
            case ast.ImportFrom(module=str(module)) if module.startswith(f"{package}."):
                found.add(module.removeprefix(f"{package}."))
    return found


def test_an_unexpected_error_keeps_its_traceback_and_asks_to_be_reported() -> None:
    code = (
        "import sys; from swe_rollout.cli import main, verbs; verbs.typer = None;"
        "sys.argv = ['swe-rollout', 'status', 'runs/demo']; main.main()"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stdout == ""
    *_, error, request = done.stderr.splitlines()
    assert error.startswith("AttributeError")
    assert request.startswith("this is a bug in swe-rollout")


def test_the_version_needs_no_verb(cli: Cli) -> None:
    assert cli("--version").out == f"{swe_rollout.__version__}\n"


def test_a_signal_that_came_during_an_import_does_not_change_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(
        "from swe_rollout.cli import main\n"
        "try:\n"
        "    exec('raise KeyboardInterrupt')\n"
        "except KeyboardInterrupt:\n"
        "    main._leave(143)\n"
    )

    done = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, check=False)

    assert done.returncode == 143


SAYS_AND_DIES = """
import os, sys
from swe_rollout.cli.main import guard_streams
guard_streams()
print("said", file=sys.stderr)
os._exit(0)
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_message_does_not_wait_for_the_end(unbuffered: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SAYS_AND_DIES],
        capture_output=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        check=True,
    )
    assert done.stderr == b"said\n"
