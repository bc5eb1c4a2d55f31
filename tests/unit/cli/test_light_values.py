"""Plain values are taken as they are, and wrong ones are refused as typer refuses them."""

from __future__ import annotations

import pytest

from unit.cli.cli_parts import run_cli


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["status", "runs/demo", "-o", "xml"], "table"),
        (["run", "job.yaml", "--display", "loud"], "rich"),
        (["view", "a", "--port", "99999"], "65535"),
        (["view", "a", "--port", "http"], "--port"),
        (["export", "a", "--sample", "x"], "--sample"),
    ],
)
def test_a_wrong_value_is_refused_and_names_what_is_right(
    arguments: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_cli(monkeypatch, *arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert told in output.err


def test_a_value_of_the_environment_is_taken_as_if_it_was_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SWE_ROLLOUT_STATUS_OUTPUT", "xml")
    assert run_cli(monkeypatch, "status") == 2
    assert "xml" in capsys.readouterr().err
