"""The list of options: every one of every verb, with a variable that is its own."""

from __future__ import annotations

import re

from rollout_dev.codegen.reference import commands, variables
from swe_rollout.cli.main import build_command


def test_no_option_takes_a_secret() -> None:
    secret = re.compile(r"--(.*-)?(api-key|key|token|password|secret|credentials)\b(?!-env)")
    for path, each in commands(build_command()):
        for option in variables(path, each):
            assert not secret.search(option), (path, option)
