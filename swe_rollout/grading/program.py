"""The test run: what is executed in the sandbox, and where in its output the log stands.

Two lines of a random text frame the log. Official scripts print fixed texts there instead, which
a patch could print as well, so these are replaced before the script runs. Used by `grader` alone.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from swe_rollout.errors import TaskError

if TYPE_CHECKING:
    from swe_rollout.instance import Evaluation

_BEGIN = re.compile(r"^\s*(?::|echo) '>>>>> Start Test Output'\s*$", re.MULTILINE)
_END = re.compile(r"^\s*(?::|echo) '>>>>> End Test Output'\s*$", re.MULTILINE)
_SHOW_BEGIN = r"printf '\\n%s\\n' "
_SHOW_END = r"printf '\\n%s %s\\n' "


@dataclass(frozen=True, slots=True)
class Frame:
    """The two lines around the log of one run."""

    begin: str = field(default_factory=lambda: secrets.token_hex(16))
    end: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def stdin(self) -> bytes:
        """How the run is told."""
        return f"{self.begin}\n{self.end}\n".encode()

    def cut(self, output: bytes) -> FramedLog | None:
        """The log in the run's output; none when the run did not get to the end of the tests."""
        text = output.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
        begun = text.partition(f"\n{self.begin}\n")[2]
        log, found, rest = begun.partition(f"\n{self.end} ")
        code = rest.partition("\n")[0]
        return FramedLog(log, int(code)) if found and code.isdecimal() else None


@dataclass(frozen=True, slots=True)
class FramedLog:
    """What the tests printed, and the exit code of their last command."""

    text: str
    exit_code: int


def program(evaluation: Evaluation) -> str:
    """The shell program of the tests, official or of our own form; TaskError when there is none."""
    if evaluation.script is None and evaluation.commands:
        return "\n".join(evaluation.commands) + "\n"
    script = evaluation.script or ""
    if not (_BEGIN.search(script) and _END.search(script)):
        raise TaskError(
            "the instance does not say how its tests are run",
            why="its script has no marks around the tests" if script else "no script, no commands",
            fix="give the row an `eval_script` of SWE-bench's form",
            retryable=False,
        )
    script = _BEGIN.sub(_SHOW_BEGIN + '"$swe_rollout_begin"', script, count=1)
    return _END.sub(
        "swe_rollout_code=$?; " + _SHOW_END + '"$swe_rollout_end" "$swe_rollout_code"',
        script,
        count=1,
    )
