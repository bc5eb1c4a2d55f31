"""Train the small tokenizer of `swe_rollout/testing/tokenizer` on Python's standard library.

The ids depend on the Python version whose sources are read, so the result is committed, and this
runs only to change it. The chat template beside it is written by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    trainers,
)

FOLDER = Path(__file__).parents[3] / "swe_rollout" / "testing" / "tokenizer"
TOTAL = 4096
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
# How Qwen splits text before BPE: contractions, words, single digits, punctuation, line ends.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train() -> Tokenizer:
    """Train a byte-level BPE of exactly `TOTAL` ids, added tokens last.

    No Unicode normaliser, unlike Qwen: encoded text decodes to the same bytes.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOTAL - len(SPECIAL) - len(MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    tokenizer.train([str(source) for source in sources], trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in MARKS])
    return tokenizer


def main(arguments: Sequence[str]) -> None:
    """Write the tokenizer and its configuration."""
    argparse.ArgumentParser(
        prog="scripts/generate-tokenizer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args(arguments)
    tokenizer = train()
    if tokenizer.get_vocab_size() != TOTAL:
        raise SystemExit(f"{tokenizer.get_vocab_size()} ids instead of {TOTAL}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    # One line is a third of the size of the indented form.
    compact = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
    (FOLDER / "tokenizer.json").write_text(compact + "\n", encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 32768,
        "clean_up_tokenization_spaces": False,
    }
    text = json.dumps(config, indent=2) + "\n"
    (FOLDER / "tokenizer_config.json").write_text(text, encoding="utf-8")
    print(f"{FOLDER}: {TOTAL} ids, {len(compact) // 1024} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
