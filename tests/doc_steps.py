"""Follow a page of the documentation as a reader does: save its files and run its commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from checkout import ROOT

_STEP = re.compile(
    r"(?:`(?P<file>[\w./-]+)`[^`\n]*:\n\n)?^```(?P<language>sh|python|yaml)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of a page in one language."""
    text = page.read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def names_in_table(page: Path, first: str) -> list[str]:
    """Return the names in the first column of a page's table, whose header is `first`."""
    rows = page.read_text("utf-8").partition(f"| {first} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([\w-]+)` \|", rows, re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Step:
    """One block of a page."""

    language: str
    text: str
    file: str | None
    """Where the words before the block say that it is saved."""


def steps(page: Path) -> list[Step]:
    """Return the blocks of a page that are to be run (`sh`, `python`) or saved."""
    return [
        Step(found["language"], found["text"], found["file"])
        for found in _STEP.finditer(page.read_text("utf-8"))
    ]


@dataclass(slots=True)
class Reader:
    """Somebody in an empty folder of a checkout, with the environment activated."""

    folder: Path
    replacements: tuple[tuple[str, str], ...] = ()
    """What stands in for parts of the page's text here, such as its placeholders."""
    timeout_s: float = 280
    """Of one block."""
    programs: str = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    """PATH. `e2e.warm.programs()` has a command that starts as a fork."""
    python: str = sys.executable
    """What runs code after `-c`; `swe-rollout` of `e2e.warm.programs()` does, too."""

    def follow(self, page: Path) -> str:
        """Carry out all steps; return what the commands and snippets printed."""
        return "".join(self.carry_out(step) for step in steps(page))

    def carry_out(self, step: Step) -> str:
        text = step.text.replace("../", f"{ROOT}/")
        for old, new in self.replacements:
            text = text.replace(old, new)
        if step.file is not None:
            path = self.folder / step.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            return ""
        match step.language:
            case "sh":
                return self._run(["bash", "-euo", "pipefail", "-c", text])
            case "python":
                return self._run([self.python, "-c", text])
            case _:
                return ""

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, "PATH": self.programs},
            capture_output=True,
            text=True,
            timeout=self.timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
        return done.stdout
