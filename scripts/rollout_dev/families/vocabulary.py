"""A vocabulary for any chat template: the package's byte-level BPE and the tokens it mentions.

It is for templates without a tokenizer: `write(source, folder)` writes a folder that
`Renderer.load` and transformers can load.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from swe_rollout.testing.tiny import tokenizer_path

_MAX_TOKENS: Final = 512
_MAX_TOKEN: Final = 60
_WORD: Final = rf"[^\s<>|｜'\"{{}}]{{1,{_MAX_TOKEN}}}"
_PLAIN: Final = r"think|tool_calls?|tool_responses?|tool_sep|arg_key|arg_value"
_CONTROL: Final = re.compile(
    rf"<\|{_WORD}\|>|<｜{_WORD}｜>|｜DSML｜"  # <|im_end|>, <｜User｜>
    r"|\[\|[a-z_]{1,30}\|\]"  # [|endofturn|]
    rf"|<\|{_WORD}>|<{_WORD}\|>|<\|\"\|>"  # <|turn> and <turn|>
    rf"|</?(?:{_PLAIN})(?::opensource)?>|</?s>|<bos>|<eos>|</?(?:system|assistant)>"
    r"|</?(?:minimax:tool_call|mm:think)>|<(?:start|end)_[a-z_]+>|<escape>"
    r"|</?seed:[a-z_]+>|<SPECIAL_\d+>|\[/?[A-Z][A-Z_]+\]|\[gMASK\]|<sop>|<sep>"
    r"|<\[[A-Z]+\]>|\]~!?b\[?\]?|\[e~\[|\]<\][a-z]+\[>\["
)
_PAIRS: Final[tuple[tuple[str, str], ...]] = (
    ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    ("<|startoftext|>", "<|im_end|>"),
    ("<|begin_of_text|>", "<|eot_id|>"),
    ("<|begin_of_text|>", "<|eot|>"),
    ("<bos>", "<end_of_turn>"),
    ("<bos>", "<turn|>"),
    ("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
    ("<|startoftext|>", "<|return|>"),
    ("<|end_of_text|>", "<|end_of_text|>"),
    ("<seed:bos>", "<seed:eos>"),
    ("]~!b[", "[e~["),
    ("<s>", "</s>"),
    ("<|bom|>", "<|eom|>"),
    ("<|begin|>", "<|end|>"),
    ("<s>", "<end_of_utterance>"),
    ("[BOS]", "[|endofturn|]"),
    ("<|startoftext|>", "<|eos|>"),
)
"""The tokens that start a text and end a turn, for families that mention the second."""
_FALLBACK: Final[tuple[tuple[str, str, str], ...]] = (
    ("[INST]", "<s>", "</s>"),
    ("<｜User｜>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
)
"""The same for templates that name no end, by a token that they do mention."""


def control_tokens(source: str) -> tuple[str, ...]:
    """Return the tokens that a template mentions, longest first; there may be any number.

    Some templates assemble their tokens, so tokens in their output count too.
    """
    found = set(_CONTROL.findall(source)) | set(_CONTROL.findall(_written(source)))
    return tuple(sorted(found, key=lambda word: (-len(word), word))[:_MAX_TOKENS])


def _written(source: str) -> str:
    """Return what the template writes for a small conversation; empty if it fails."""
    from transformers.utils.chat_template_utils import render_jinja_template  # noqa: PLC0415

    user = {"role": "user", "content": "x"}
    assistant = {"role": "assistant", "content": "x"}
    try:
        # It returns the texts, and where the policy's are in them.
        written = render_jinja_template([[user, assistant, user]], chat_template=source)[0]
    except Exception:  # noqa: BLE001 - a template is a program and may raise anything
        return ""
    return "".join(written)


def ends(source: str) -> tuple[str, str]:
    """Return the tokens that start a text and end a turn."""
    for begin, end in _PAIRS:
        if end in source:
            return begin, end
    for mentioned, begin, end in _FALLBACK:
        if mentioned in source:
            return begin, end
    return "<s>", "</s>"


def write(source: str, folder: Path, *, tokens: Sequence[str] | None = None) -> Path:
    """Write a tokenizer with a template to `folder`, creating it; return the folder.

    `tokens` are the control tokens, by default those that the template mentions.
    """
    begin, end = ends(source)
    found = control_tokens(source) if tokens is None else tokens
    every = tuple(dict.fromkeys((*found, begin, end, "<|endoftext|>")))
    special = [each for each in every if each in (begin, end) or "|" in each or "｜" in each]
    return write_tokenizer(source, folder, tokens=every, special=special, bos=begin, eos=end)


def write_tokenizer(
    source: str,
    folder: Path,
    *,
    tokens: Sequence[str],
    special: Sequence[str],
    eos: str,
    bos: str | None = None,
) -> Path:
    """Write the package's byte-level BPE with these control tokens and a template."""
    definition = json.loads((tokenizer_path() / "tokenizer.json").read_text("utf-8"))
    start = min(each["id"] for each in definition["added_tokens"])
    definition["added_tokens"] = [
        {
            "id": start + index,
            "content": content,
            "special": content in special,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for index, content in enumerate(tokens)
    ]
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **({"bos_token": bos} if bos else {}),
        "eos_token": eos,
        "model_max_length": 1 << 20,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(definition), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    (folder / "chat_template.jinja").write_text(source, "utf-8")
    return folder
