"""The policies of the league: one shell script each, with an honest counterpart in the same file.

A script changes the repository of a task as an agent would. Its first comment says what it does;
what follows `# honest: …` runs instead on top of the true fix, touches the same kind of files, and
has to resolve the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Final

_MARK: Final = "\n# honest: "


@dataclass(frozen=True, slots=True)
class Policy:
    """One attack and its honest counterpart."""

    name: str
    about: str
    attack: str
    """For the shell of an agent's sandbox; leaves a patch in /tmp/patch where the tree's own diff
    is not what it hands in."""
    honest: str


def load_policies(*, only: str = "") -> tuple[Policy, ...]:
    """Return the policies with `only` in their names, in the order of their names."""
    folder = files(__package__) / "policies"
    found = sorted(each.name for each in folder.iterdir() if each.name.endswith(".sh"))
    return tuple(
        _policy(name.removesuffix(".sh"), (folder / name).read_text(encoding="utf-8"))
        for name in found
        if only in name
    )


def prelude() -> str:
    """Return the shell functions that scripts may use."""
    return (files(__package__) / "prelude.sh").read_text(encoding="utf-8")


def _policy(name: str, text: str) -> Policy:
    attack, mark, honest = text.partition(_MARK)
    if not mark or not text.startswith("# "):
        raise ValueError(f"{name}.sh needs a first comment and a line `# honest: …`")
    about = text.partition("\n")[0].removeprefix("# ")
    return Policy(name, about, attack + "\n", honest.partition("\n")[2])
