"""Completion in bash, zsh and fish, and of `kubectl swe-rollout`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from swe_rollout.cli import completion, options
from unit.cli.cli_parts import Cli
from unit.cli.store_parts import stored

Complete = Callable[[str], list[str]]


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """What kubectl is offered for the last word, and its directive."""

    def ask(words: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["kubectl_complete-swe_rollout", *words.split(" ")])
        for variable in ("_SWE_ROLLOUT_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
            monkeypatch.setenv(variable, "")
        completion.complete_for_kubectl()
        return capsys.readouterr().out.split()

    return ask


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("la", ["launch", ":4"]),
        ("launch --dr", ["--dry-run", ":4"]),
        ("cancel ", ["demo", "dino", ":4"]),
        ("cancel di", ["dino", ":4"]),
        ("launch ex", [":0"]),
    ],
)
def test_kubectl_gets_the_words_of_the_command_line(
    words: str, offered: list[str], complete: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def list_names(namespace: str | None, context: str | None) -> list[str]:
        del namespace, context
        await asyncio.sleep(0)
        return ["demo", "dino"]

    monkeypatch.setattr(options, "_list_names", list_names)
    monkeypatch.setenv("KUBECONFIG", "config")

    assert complete(words) == offered


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("status ", ["runs/demo", "runs/other"]),
        ("status runs/d", ["runs/demo"]),
        ("view runs/demo", ["runs/demo"]),
        ("view runs/demo/a", ["runs/demo/a/0", "runs/demo/a/1"]),
        ("view runs/demo/", ["runs/demo/a/0", "runs/demo/a/1"]),
        ("view runs/demo/b", []),
        ("view runs/demo/a/0 runs/o", ["runs/other"]),
        ("status s3://bucket/", []),
        ("status nothing/there/", []),
        ("export runs/demo --to par", ["parquet"]),
    ],
)
def test_jobs_in_folders_and_their_episodes_are_completed_without_a_cluster(
    words: str, offered: list[str], complete: Complete, tmp_path: Path
) -> None:
    (tmp_path / "runs/other").mkdir()
    (tmp_path / "runs/other/plan.json").write_text("{}")
    (tmp_path / "runs/no-job").mkdir()

    assert complete(words)[:-1] == offered


SHELL_CASES = {
    "swe-rollout sta": ["stats", "status"],
    "swe-rollout status runs/d": ["runs/demo"],
    "swe-rollout view runs/demo/a": ["runs/demo/a/0", "runs/demo/a/1"],
    "swe-rollout status runs/demo --outp": ["--output"],
    "swe-rollout status runs/demo -o ya": ["yaml"],
}


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("line", SHELL_CASES)
def test_a_shell_completes_verbs_options_jobs_and_addresses(
    shell: str, line: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 17, point 3: called as the shell's own script calls it."""
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }
    for name, value in ({"_SWE_ROLLOUT_COMPLETE": f"complete_{shell}"} | asked[shell]).items():
        monkeypatch.setenv(name, value)

    said = cli().out

    for word in SHELL_CASES[line]:
        assert f'"{word}"' in said if shell == "zsh" else word in said.split()


def test_bash_completes_with_the_script_that_is_installed(tmp_path: Path) -> None:
    stored(tmp_path)
    program = Path(sys.executable).parent
    script = (
        'eval "$(_SWE_ROLLOUT_COMPLETE=source_bash swe-rollout)"\n'
        "COMP_WORDS=(swe-rollout view runs/demo/a)\nCOMP_CWORD=2\n"
        "_swe_rollout_completion swe-rollout\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )

    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"PATH": f"{program}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["runs/demo/a/0", "runs/demo/a/1"]
