from __future__ import annotations

import subprocess
import sys

import pytest

import swe_rollout.integrations.strands as ours


def test_without_strands_the_package_is_imported_and_its_users_say_what_is_missing() -> None:
    """WS9: an optional dependency. Importing the package imports no framework."""
    code = """
import sys
sys.modules["strands"] = sys.modules["strands.hooks"] = None
import swe_rollout.integrations.strands as ours
print([name for name in ("transformers", "aiohttp") if name in sys.modules])
ours.SGLangClient, ours.get_client, ours.get_tokenizer, ours.get_tool_parser, ours.Rollout
ours.SGLangThrottledError
for name in ("SglangModel", "SGLangModel", "LoopLimiter", "ToolLimiter"):
    try:
        getattr(ours, name)
    except ImportError as error:
        print(type(error).__name__, error.fix)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    missing = "StrandsMissingError pip install 'swe-rollout[strands]'\n"
    assert done.stdout == "[]\n" + 4 * missing


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ours.nothing  # noqa: B018 - looked up
