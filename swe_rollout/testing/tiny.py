"""The package's small tokenizer, for scripted policies, demonstrations and tests.

Its chat template follows Qwen's.
"""

from __future__ import annotations

from pathlib import Path


def tokenizer_path() -> Path:
    """Return the folder with `tokenizer.json`, its configuration and the chat template."""
    return Path(__file__).parent / "tokenizer"
