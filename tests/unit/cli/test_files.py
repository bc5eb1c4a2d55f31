"""Files that a user names: what is there stays, and what the machine refuses is no bug."""

from __future__ import annotations

import json
import os
from pathlib import Path

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


def test_an_address_says_which_name_is_too_long(address: str, cli: Cli) -> None:
    assert "63 characters at most" in cli("stats", address + TOO_LONG, code=2).err
    assert "File name too long" in cli("stats", f"{address}/{TOO_LONG}/demo", code=2).err


WRITERS = [
    ("export", "runs/demo", "--to", "json"),
    ("regrade", "runs/demo"),
    ("fork", "runs/demo/a/1", "--turn", "6"),
    ("datasets", "rows", "rows.jsonl"),
]


@pytest.mark.parametrize("words", WRITERS, ids=lambda words: words[0])
def test_a_file_that_is_there_stays(words: tuple[str, ...], address: str, cli: Cli) -> None:
    there = Path(address, "plan.json")
    before = there.read_bytes()
    assert "--overwrite" in cli(*words, "-O", str(there), code=2).err
    assert there.read_bytes() == before


@pytest.mark.parametrize("name", ["pipe", "-"])
@pytest.mark.parametrize("words", WRITERS, ids=lambda words: words[0])
def test_nothing_but_a_file_is_replaced(
    words: tuple[str, ...], name: str, address: str, cli: Cli
) -> None:
    """A device, such as `/dev/null`, would be a plain file from then on, for everybody."""
    pipe = Path(address).parents[1] / "pipe"
    os.mkfifo(pipe)
    assert f"{name} is no file" in cli(*words, "-O", name, "--overwrite", code=2).err
    assert pipe.is_fifo()
    assert not Path("-").exists()


def test_a_file_behind_a_link_is_replaced_and_the_link_stays(address: str, cli: Cli) -> None:
    real, link = (Path(address).parents[1] / name for name in ("real.json", "link.json"))
    real.touch()
    link.symlink_to(real)
    told = cli("export", address, "--to", "json", "-O", str(link), "--overwrite")
    assert told.out == f"{real}\n"
    assert link.is_symlink()
    assert len(json.loads(real.read_text())) == 2
