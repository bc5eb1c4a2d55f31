"""What a call does, told from its name and arguments."""

from __future__ import annotations

import pytest

from swe_rollout.agent.presets.work import Work, work_of
from swe_rollout.types.turn import ToolCall
from unit.agent.presets.preset_parts import SUBMIT, call, create, run, view


@pytest.mark.parametrize(
    ("found", "work"),
    [
        (view("a.py"), Work.VIEW),
        (create("a.py"), Work.EDIT),
        (run("ls"), Work.COMMAND),
        (run("cd x && python -m pytest -q a.py"), Work.TEST),
        (run("bin/test -C"), Work.TEST),
        (run("grep -rn contest ."), Work.COMMAND),
        (run("git apply fix.patch && git diff"), Work.EDIT),
        (call("execute_bash", cmd="sed -i s/a/b/ x"), Work.EDIT),
        (call("run_tests", test_command="x"), Work.TEST),
        (call("search_code", query="x"), Work.SEARCH),
        (call("bash", command=3), Work.OTHER),
        (SUBMIT, Work.OTHER),
    ],
)
def test_the_work_of_a_call(found: ToolCall, work: Work) -> None:
    assert work_of(found) is work
