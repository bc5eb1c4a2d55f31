"""The list of options: every one of every verb, with a variable that is its own."""

from __future__ import annotations

import re

from checkout import ROOT
from rollout_dev.codegen.reference import commands, variables
from swe_rollout.cli.main import build_command

PAGE = ROOT / "docs" / "reference" / "cli.md"


def test_the_page_has_every_option_and_its_variable() -> None:
    """Issue 17, point 3: an environment variable for every option, documented."""
    text = PAGE.read_text("utf-8")
    found = [
        name for path, each in commands(build_command()) for name in variables(path, each).values()
    ]
    assert len(found) > 100
    assert len(found) == len(set(found))
    for name in found:
        assert re.fullmatch(r"SWE_ROLLOUT_[A-Z0-9_]+", name)
        assert f"| `{name}` |" in text


def test_a_variable_is_named_after_the_long_name_of_its_option() -> None:
    names = {path: variables(path, each) for path, each in commands(build_command())}

    assert names["run",]["--set"] == "SWE_ROLLOUT_RUN_SET"
    assert names["run",]["-o, --output"] == "SWE_ROLLOUT_RUN_OUTPUT"
    weights = names["engine", "update-weights"]
    assert weights["--model-path"] == "SWE_ROLLOUT_ENGINE_UPDATE_WEIGHTS_MODEL_PATH"


def test_no_option_takes_a_secret() -> None:
    secret = re.compile(r"--(.*-)?(api-key|key|token|password|secret|credentials)\b(?!-env)")
    for path, each in commands(build_command()):
        for option in variables(path, each):
            assert not secret.search(option), (path, option)
