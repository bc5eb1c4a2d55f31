"""The small tokenizer of the package: for scripted policies, demonstrations and tests.

`scripts/generate-tokenizer` trains it; it has a chat template in the form of Qwen's.
"""

from __future__ import annotations

from pathlib import Path


def tokenizer_path() -> Path:
    """The folder with `tokenizer.json`, its configuration and the chat template."""
    return Path(__file__).parent / "tokenizer"
