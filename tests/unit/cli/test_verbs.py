"""The table of verbs: true to the verbs, which are imported only when they are used; and their
environment variables: flag before variable before file.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from swe_rollout.cli.verbs import VERBS, Verb
from swe_rollout.spec.load import load_job
from swe_rollout.spec.template import template
from unit.cli.cli_parts import Cli
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


def test_help_has_one_line_for_each_verb_by_panel(cli: Cli) -> None:
    lines = cli("--help").out.splitlines()
    for verb in VERBS:
        found = [line for line in lines if line.split()[:1] == [verb.name]]
        assert len(found) == (1 if verb.panel else 0)
    assert {f"{verb.panel}:" for verb in VERBS if verb.panel} <= set(lines)
    assert len(lines) <= LINES_OF_ALL_VERBS


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_help_of_a_verb_is_at_most_one_screen(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """Issue 17, point 3: 40 lines at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli(*path, "--help").out.splitlines()
    assert len(lines) <= LINES_OF_A_SCREEN
    has_options = any(each.param_type_name == "option" for each in COMMANDS[path].params)
    assert any("SWE_ROLLOUT_" in line for line in lines) is has_options


HEAVY = {"pydantic", "numpy", "rich", "structlog", "kubernetes", "aiohttp", "transformers", "yaml"}


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
    heavy = HEAVY | ({"obstore"} if "--help" in arguments else set())
    code = (
        f"import sys; sys.argv = ['swe-rollout', *{arguments!r}]\n"
        "from swe_rollout.cli.main import main\n"
        "try:\n    main()\nfinally:\n"
        f"    print('heavy:', *sorted({heavy} & set(sys.modules)), file=sys.stderr)"
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


@pytest.mark.usefixtures("address")
def test_a_variable_stands_for_an_option_and_the_option_comes_first(
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("SWE_ROLLOUT_STATUS_OUTPUT", "json")
    assert cli("status", "runs/demo").json["committed"] == 2
    assert "committed: 2" in cli("status", "runs/demo", "-o", "yaml").out
    monkeypatch.setenv("SWE_ROLLOUT_STATUS_OUTPUT", "")
    assert cli("status", "runs/demo").out.startswith("INSTANCE")


def test_a_variable_comes_before_the_job_file_and_may_hold_several_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(template().replace("samples: 4", "samples: 5"))
    assert load_job(path).spec.samples == 5
    monkeypatch.setenv("SWE_ROLLOUT_RUN_SET", "spec.samples=none spec.limits.turns=none")

    said = cli("run", str(path), code=2).err
    assert "--set spec.samples: expected an integer, found 'none'" in said
    assert "--set spec.limits.turns: expected an integer" in said

    said = cli("run", str(path), "--set", "spec.parallelism=none", code=2).err
    assert "spec.parallelism" in said
    assert "spec.samples" not in said


@pytest.mark.usefixtures("address")
def test_a_flag_and_the_options_in_front_of_the_verb_have_variables(
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("SWE_ROLLOUT_VERBOSE", "two")
    assert "$SWE_ROLLOUT_VERBOSE" in cli("status", "runs/demo", code=2).err

    monkeypatch.setenv("SWE_ROLLOUT_VERBOSE", "2")
    monkeypatch.setenv("SWE_ROLLOUT_EXPORT_OVERWRITE", "1")
    monkeypatch.setenv("SWE_ROLLOUT_EXPORT_TO", "json")
    for _ in range(2):
        cli("export", "runs/demo")


@pytest.mark.usefixtures("address")
def test_a_wrong_variable_is_named_and_an_unknown_one_too(
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("SWE_ROLLOUT_STATUS_OUPUT", "json")
    assert cli("status", "runs/demo").err.startswith(
        "the variable SWE_ROLLOUT_STATUS_OUPUT stands for no option; "
        "did you mean SWE_ROLLOUT_STATUS_OUTPUT?\n"
    )

    monkeypatch.setenv("SWE_ROLLOUT_STATUS_OUTPUT", "csv")
    error = cli("status", "runs/demo", code=2).err
    assert "$SWE_ROLLOUT_STATUS_OUTPUT: 'csv' is not one of" in error
