from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

import swe_rollout.integrations.strands as ours

WITHOUT_STRANDS = [
    "SGLangClient",
    "get_client",
    "get_tokenizer",
    "get_tool_parser",
    "Rollout",
    "SGLangThrottledError",
]


@pytest.mark.parametrize("name", WITHOUT_STRANDS)
def test_what_needs_no_strands_is_there_without_it(name: str) -> None:
    assert getattr(ours, name)


@pytest.mark.parametrize("name", ["SglangModel", "SGLangModel", "LoopLimiter", "ToolLimiter"])
def test_where_strands_is_missing_its_users_say_so(name: str) -> None:
    """WS9: an optional dependency."""
    code = (
        "import sys; sys.modules['strands'] = sys.modules['strands.hooks'] = None\n"
        f"try: from swe_rollout.integrations.strands import {name}\n"
        "except ImportError as error: print(type(error).__name__, error.fix)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "StrandsMissingError pip install 'swe-rollout[strands]'\n"


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ours.nothing  # noqa: B018 - looked up


def test_importing_the_package_imports_no_framework() -> None:
    code = (
        "import sys, swe_rollout.integrations.strands\n"
        "print([n for n in ('strands', 'transformers', 'aiohttp') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
    assert find_spec("swe_rollout.integrations.strands.model")
