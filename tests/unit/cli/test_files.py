"""Paths that the machine refuses."""

from __future__ import annotations

import pytest

from unit.cli.cli_parts import Cli

TOO_LONG = "n" * 300


@pytest.mark.parametrize(
    "words",
    [
        ("view", f"runs/{TOO_LONG}"),
        ("events", f"runs/{TOO_LONG}"),
        ("validate", f"{TOO_LONG}.jsonl"),
        ("init", TOO_LONG),
        ("export", "runs/demo", "--to", "json", "-O", TOO_LONG),
    ],
    ids=lambda words: words[0],
)
def test_a_path_that_the_machine_refuses_is_no_bug(
    words: tuple[str, ...], address: str, cli: Cli
) -> None:
    assert address
    told = cli(*words, code=2).err
    assert TOO_LONG in told
    assert "File name too long" in told
    assert "name another path" in told
    assert "Traceback" not in told


def test_a_store_says_which_names_are_too_long(address: str, cli: Cli) -> None:
    assert (
        "no part of a path has more than 255 bytes" in cli("stats", address + TOO_LONG, code=4).err
    )
