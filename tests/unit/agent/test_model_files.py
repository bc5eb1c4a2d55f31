"""What is read of a model's files: its tokenizer, the size of its vocabulary; nothing is said."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from swe_rollout.agent.renderer import Renderer
from swe_rollout.errors import PrerequisiteError
from swe_rollout.testing.tiny import tokenizer_path


def test_the_vocabulary_is_the_model_s_where_its_configuration_says(tmp_path: Path) -> None:
    folder = str(shutil.copytree(tokenizer_path(), tmp_path / "model"))
    tokenizer_size = Renderer.load(folder).vocab_size

    config = tmp_path / "model" / "config.json"
    config.write_text('{"model_type": "qwen3", "vocab_size": 5000}')
    assert tokenizer_size < 5000
    assert Renderer.load(folder).vocab_size == 5000


def test_a_folder_without_a_tokenizer_is_a_missing_prerequisite(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="there is no tokenizer at") as raised:
        Renderer.load(str(tmp_path))
    assert "spec.policy.tokenizer" in raised.value.fix


def test_loading_says_nothing_and_leaves_the_root_logger_alone() -> None:
    code = (
        "import logging; from swe_rollout.agent.renderer import Renderer;"
        "from swe_rollout.testing.tiny import tokenizer_path; import sys;"
        "assert 'transformers' not in sys.modules;"
        "Renderer.load(str(tokenizer_path()));"
        "assert not logging.getLogger().handlers and not logging.getLogger('transformers').filters"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert logging.getLogger("transformers").filters == []
