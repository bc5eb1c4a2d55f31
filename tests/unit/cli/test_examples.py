"""Every example in the help and in the docs: it parses, and what it names exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkout import ROOT
from swe_rollout.cli.job_file import explanation
from swe_rollout.cli.main import build_command
from swe_rollout.datasets.base import load
from swe_rollout.spec.dataset import Dataset, ReleasePairsDataset

pytestmark = pytest.mark.threat(point=22)

GROUP: Any = build_command()
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("examples/**/*.md")])
PROGRAM = re.compile(r"^(?:\$ )?(?:kubectl )?(swe-rollout\b.*)$")
PLACEHOLDER = re.compile(r"…|\.\.\.|\bVERB\b|--install-completion")
"""Parts of lines that are no commands to try; the last one changes files of the user."""
PAIR = re.compile(r"\b([a-z][a-z0-9-]*)-\d+\.\d+(?:\.\d+)?\b")


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(_commands(GROUP))


def _of_help() -> Iterator[tuple[str, str]]:
    for path, command in COMMANDS.items():
        for line in (command.help or "").splitlines():
            if match := PROGRAM.match(line.strip()):
                yield f"{' '.join(path)} --help", match[1]


def _of_pages() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        place = str(page.relative_to(ROOT))
        text = page.read_text().replace("\\\n", " ")
        for block in re.findall(r"^[ ]*```[a-z]*\n(.*?)^[ ]*```", text, re.DOTALL | re.MULTILINE):
            for line in block.splitlines():
                if match := PROGRAM.match(line.strip()):
                    yield place, match[1]
        plain = re.sub(r"^[ ]*```.*?^[ ]*```", "", text, flags=re.DOTALL | re.MULTILINE)
        for inline in re.findall(r"`((?:kubectl )?swe-rollout [^`]*)`", plain):
            if match := PROGRAM.match(" ".join(inline.split())):
                yield place, match[1]


def _cases() -> dict[str, str]:
    return {
        f"{place}: {line}": line
        for place, line in (*_of_help(), *_of_pages())
        if not PLACEHOLDER.search(line) and not re.match(r"swe-rollout \d", line)
    }


CASES = _cases()


def _words(line: str) -> list[str]:
    words = shlex.split(line.partition("#")[0] if " #" in line else line)[1:]
    ends = [number for number, word in enumerate(words) if re.fullmatch(r"\||&&|;|\d?>.*", word)]
    return words[: ends[0]] if ends else words


def _problem(words: list[str]) -> str:
    """What the command line says to these words; a verb that is only mentioned lacks its words."""
    command, context = GROUP, None
    try:
        context = command.make_context("swe-rollout", list(words))
        while hasattr(command, "commands"):
            name, command, rest = command.resolve_command(
                context, context._protected_args + context.args
            )
            context = command.make_context(name, rest, parent=context)
    except Exception as error:  # noqa: BLE001 - typer's copy of click has the classes
        kind = type(error).__name__
        is_mention = kind in ("MissingParameter", "NoArgsIsHelpError") and len(words) <= 2
        return "" if kind in ("Exit", "Abort") or is_mention else f"{kind}: {error}"
    return ""


def test_examples_are_found() -> None:
    assert len(list(_of_help())) > 30
    assert len(list(_of_pages())) > 40
    assert all(
        any(place == f"{' '.join(path)} --help" for place, _ in _of_help()) for path in COMMANDS
    )


@pytest.mark.parametrize("case", CASES)
def test_an_example_is_a_command_that_parses(case: str) -> None:
    assert _problem(_words(CASES[case])) == ""


@pytest.mark.parametrize("case", [case for case in CASES if "explain " in case])
def test_a_field_that_an_example_explains_exists(case: str) -> None:
    _, path = _words(CASES[case])[:2]
    assert list(explanation(path))


async def test_an_instance_that_is_named_anywhere_exists() -> None:
    pairs = Dataset(release_pairs=ReleasePairsDataset())
    loaded = await load(pairs, base_dir=Path.cwd(), on_progress=lambda _: None)
    known = {instance.instance_id for instance in loaded.instances}
    projects = {name.rpartition("-")[0] for name in known}
    helps = {f"{' '.join(path)} --help": command.help or "" for path, command in COMMANDS.items()}
    texts = helps | {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
    named = {
        (place, match[0])
        for place, text in texts.items()
        for match in PAIR.finditer(text)
        if match[1] in projects
    }
    assert {name for _, name in named}
    assert {(place, name) for place, name in named if name not in known} == set()


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_option_means_the_same_everywhere(path: tuple[str, ...]) -> None:
    meanings = {
        "-o": "output",
        "--output": "output",
        "-O": "output_file",
        "--output-file": "output_file",
        "-n": "namespace",
        "-f": "follow",
    }
    for parameter in COMMANDS[path].params:
        for name in parameter.opts:
            assert parameter.name == meanings.get(name, parameter.name)
    formats = [each for each in COMMANDS[path].params if each.name == "output"]
    for parameter in formats:
        assert set(parameter.opts) == {"-o", "--output"}
        assert parameter.default in ("table", "text")
