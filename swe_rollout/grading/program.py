"""The shell program that runs the tests. Used by `grader`.

The log is all that one command writes to its stdout; no text in it marks where it begins or ends.
What an official script does before its tests goes to stderr.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from swe_rollout.errors import TaskError
from swe_rollout.types.instance import Evaluation

_BEGIN: Final = re.compile(r"^\s*(?::|echo) '>>>>> Start Test Output'\s*$", re.MULTILINE)
_END: Final = re.compile(r"^\s*(?::|echo) '>>>>> End Test Output'\s*$", re.MULTILINE)
_NO_INPUT: Final = "exec </dev/null\n"
# A higher exit code than 128 then says that this shell was killed, not a test command.
_TESTS: Final = """\
exec 2>&1
(
{}
)
swe_rollout_code=$?
[ "$swe_rollout_code" -le 128 ] || swe_rollout_code=128
exit "$swe_rollout_code"
"""


@dataclass(frozen=True, slots=True)
class Program:
    """The shell program that runs the tests, in two parts."""

    setup: str
    """What an official script does before its tests; its output belongs to no log."""
    tests: str
    """The test commands; all they write is the log."""

    @property
    def text(self) -> str:
        """The whole program. Its exit code is that of the last test command, at most 128."""
        setup = f"{{\n:\n{self.setup}\n}} >&2\n" if self.setup else ""
        return _NO_INPUT + setup + _TESTS.format(self.tests)


def program(evaluation: Evaluation) -> Program:
    """Return the program that runs the tests. Raises TaskError when there is none."""
    if evaluation.script is None and evaluation.commands:
        return Program("", "\n".join(evaluation.commands))
    script = evaluation.script or ""
    begin = _BEGIN.search(script)
    end = _END.search(script, begin.end()) if begin else None
    if begin is None or end is None:
        raise TaskError(
            "the instance does not say how its tests are run",
            why="its script does not mark where the test output starts and ends"
            if script
            else "it has neither a script nor commands",
            fix="give it commands (`test_cmd` in rows) or a script of SWE-bench's form",
            retryable=False,
        )
    # What follows the tests only tidies up a sandbox that is thrown away.
    return Program(script[: begin.start()], script[begin.end() : end.start()])
