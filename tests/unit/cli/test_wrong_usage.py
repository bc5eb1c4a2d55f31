"""Wrong command lines: the same form as all errors, for every verb, and the codes of every verb.

What people write instead of what is meant is in tests/e2e/wrong_uses/command_line.yaml.
"""

from __future__ import annotations

import shlex
from typing import Any, NoReturn

import pytest

from swe_rollout.cli import main
from swe_rollout.cli.wrong_usage import is_parse_error
from swe_rollout.errors import (
    PrerequisiteError,
    SweRolloutError,
    UnreachableError,
    UsageError,
)
from unit.cli.cli_parts import Cli
from unit.cli.test_examples import COMMANDS, PROGRAM

SHOWN = {path: command for path, command in COMMANDS.items() if not command.hidden}
ENDS: dict[str, tuple[BaseException, int]] = {
    "failed": (SweRolloutError("it failed", fix="do that"), 1),
    "wrong": (UsageError("it is wrong", fix="do that"), 2),
    "lacking": (PrerequisiteError("it lacks", fix="do that"), 3),
    "unreachable": (UnreachableError("no answer", fix="do that"), 4),
    "interrupted": (KeyboardInterrupt(), 130),
}


def examples(command: Any) -> list[list[str]]:
    lines = (PROGRAM.match(line.strip()) for line in (command.help or "").splitlines())
    return [shlex.split(line[1].partition(" | kubectl")[0])[1:] for line in lines if line]


def replaced(path: tuple[str, ...], error: BaseException | None) -> Any:
    """The command line, one of whose verbs only ends so."""

    def instead(**_: object) -> None:
        if error is not None:
            raise error

    group: Any = main.build_command()
    command = group
    for name in path:
        command = command.commands[name]
    command.callback = instead
    return group


@pytest.mark.parametrize("path", SHOWN, ids=" ".join)
def test_the_first_example_of_every_verb_reaches_it(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    group = replaced(path, None)
    monkeypatch.setattr(main, "build_command", lambda: group)
    first, *others = examples(SHOWN[path])

    assert others
    done = cli(*first)
    assert (done.out, done.err) == ("", "")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("path", [("status",), ("engine", "status")], ids=" ".join)
def test_a_verb_ends_with_the_documented_codes(
    path: tuple[str, ...], end: str, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """Issue 17, point 3: exit codes 1, 2, 3, 4 and 130."""
    error, code = ENDS[end]
    group = replaced(path, error)
    monkeypatch.setattr(main, "build_command", lambda: group)

    done = cli(*examples(SHOWN[path])[0], code=code)

    assert done.out == ""
    assert ("error:" in done.err) is isinstance(error, SweRolloutError)
    assert "Traceback" not in done.err


@pytest.mark.parametrize("path", SHOWN, ids=" ".join)
def test_every_verb_refuses_an_option_that_it_has_not(path: tuple[str, ...], cli: Cli) -> None:
    done = cli(*path, "--no-such-thing", code=2)

    assert done.out == ""
    what, why, *fix, docs = done.err.splitlines()
    assert what == "error: there is no option --no-such-thing here"
    assert why.startswith(f"  why   Usage: swe-rollout {' '.join(path)}")
    assert f"`swe-rollout {' '.join(path)} --help` lists what there is" in fix[-1]
    assert docs == "  docs  docs/troubleshooting.md#usage"


@pytest.mark.parametrize("group", ["engine", "datasets", "sandbox"])
def test_a_group_alone_shows_its_verbs(group: str, cli: Cli) -> None:
    assert cli(group, code=2).err.startswith(f"Usage: swe-rollout {group}")


def test_only_the_parsers_errors_are_taken_for_wrong_usage() -> None:
    def fail() -> NoReturn:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug") as caught:
        fail()
    assert not is_parse_error(caught.value)
