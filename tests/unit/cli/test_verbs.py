"""The table of verbs: true to the verbs, which are imported only when they are used."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from swe_rollout.cli.verbs import VERBS, Verb
from unit.cli.cli_parts import run_cli
from unit.cli.store_parts import stored
from unit.cli.test_examples import COMMANDS

LINES_OF_A_SCREEN = 40
LINES_OF_ALL_VERBS = 65


def single() -> list[Verb]:
    return [verb for verb in VERBS if not verb.is_group]


@pytest.mark.parametrize("verb", single(), ids=lambda verb: verb.name)
def test_help_lists_a_verb_with_the_beginning_of_its_docstring(verb: Verb) -> None:
    (function,) = verb.functions()
    words = " ".join((inspect.getdoc(function) or "").split())

    assert words.startswith(verb.about.removesuffix("."))
    assert len(verb.name) + len(verb.about) < 78


def test_help_has_one_line_for_each_verb_by_panel(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "--help") == 0

    lines = capsys.readouterr().out.splitlines()
    for verb in VERBS:
        found = [line for line in lines if line.split()[:1] == [verb.name]]
        assert len(found) == (1 if verb.panel else 0)
    assert {f"{verb.panel}:" for verb in VERBS if verb.panel} <= set(lines)
    assert len(lines) <= LINES_OF_ALL_VERBS


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_help_of_a_verb_is_at_most_one_screen(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 17, point 3: 40 lines at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run_cli(monkeypatch, *path, "--help") == 0

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= LINES_OF_A_SCREEN
    has_options = any(each.param_type_name == "option" for each in COMMANDS[path].params)
    assert any("SWE_ROLLOUT_" in line for line in lines) is has_options


def test_a_verb_that_is_misspelt_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "stauts") == 2
    assert "did you mean" in capsys.readouterr().err


HEAVY = (
    "{'pydantic', 'numpy', 'rich', 'structlog', 'kubernetes', 'aiohttp', 'transformers', 'yaml'}"
)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["status", "--help"], ["status", "runs/demo"], ["status"], ["--version"]],
    ids=" ".join,
)
def test_what_should_be_fast_imports_nothing_that_is_slow(
    arguments: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store")
    stored(folder)
    code = (
        f"import sys; sys.argv = ['swe-rollout', *{arguments!r}]\n"
        "from swe_rollout.cli.main import main\n"
        "try:\n    main()\nfinally:\n"
        f"    print('heavy:', *sorted({HEAVY} & set(sys.modules)), file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"HOME": str(folder), "PATH": ""},
    )

    assert done.stderr.splitlines()[-1] == "heavy:"
