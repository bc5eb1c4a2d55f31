"""Shell completion for kubectl's plugin: `kubectl swe-rollout …<TAB>`."""

from __future__ import annotations

import io
import os
import shlex
import sys
from contextlib import redirect_stdout, suppress

from swe_rollout.cli.main import build_command

_OFFER_FILES, _OFFER_NO_FILES = ":0", ":4"
"""Directives that kubectl (cobra) reads after the words: offer file names, or don't."""


def complete_for_kubectl() -> None:
    """Print completions: the entry point `kubectl_complete-swe_rollout`."""
    words = sys.argv[1:]
    os.environ |= {
        "_SWE_ROLLOUT_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(["swe-rollout", *words]),
        "COMP_CWORD": str(len(words)),
    }
    offered = io.StringIO()
    with redirect_stdout(offered), suppress(SystemExit):
        build_command()(prog_name="swe-rollout")
    found = offered.getvalue().split()
    sys.stdout.write("\n".join([*found, _OFFER_NO_FILES if found else _OFFER_FILES]) + "\n")
