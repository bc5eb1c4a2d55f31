"""Adapt the vocabulary of a `tokenizer.json` to text from outside, which must not be changed.

Control tokens are removed, even from the base vocabulary. Steps that add or remove a leading space
are disabled, because a body is in the middle of a text. Normalizers are removed: a file that
contains `e` and a combining accent must reach the policy as these bytes, or no edit of it can
match. Used by `encoding`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import Final, Literal

from swe_rollout.errors import PrerequisiteError

_INNER = {"normalizers", "pretokenizers", "decoders"}
"""The keys under which a sequence lists its steps."""
_UNREACHABLE = -1e9
"""A score so low that the piece is never used."""
_SPACE: Final = "\u2581"
"""The character that SentencePiece vocabularies write for a space."""
_BYTE_NAME: Final = re.compile(r"(?<=<)(?=0x[0-9A-F]{2}>)")
_FORMS: Final[tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...]] = ("NFC", "NFD", "NFKC", "NFKD")
_RANDOM: Final = ("dropout", "alpha", "nbest_size")
_TEXTS: Final = (
    " \n def F(x):\n\treturn {'ä': [1, 2.5]}  # 日本 ½",
    "cafe\u0301 e\u0301\u0323 a\u0328\u0301 \u212b \u00c5 \ufb01 \u2126 \u01c5 \u0130\u0131ßẞ",
    "\u1112\u1161\u11ab \ud55c \uac00\u11a8 \u3131 \u09c7\u09be \u0958 \u0f43",
    "a\r\nb\rc\n\rd\r\r\n\x0b\x0c\x85\u2028\u2029 \x1c\x1d\x1e\x1f",
    "\x00 \x01\x02\x07\x08\x1b[0m\x7f\x80\x9f \x00\x00",
    "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\u061c\u180e\u202e\u2066x\u2069",
    "\u2581 \u2581\u2581a\u2581 b\u2581\n\u2581",
    "   three  two one ",
    "\t\t \t x \n\n\n \n",
    "\u00a0\u1680\u2003\u202f\u205f\u3000x\u3000",
    "👩\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 👍🏽 🇩🇪 1\ufe0f\u20e3",
    "\ue000\uf8ff\U000f0000\U0010fffd \ufdd0\uffff \ufffd \ufffe",
    "<0x0A> <0xE2><0x96><0x81> <unk> <pad> ##ab Ġ Ċ âĸģ </w> @@ \\u0301",
    "don ' t . I ' m , you 're n't ! ? ( x ) [ y ]",
    "MiXeD CASE Straße ǅ ΣΑΣ",
    "x" * 300 + "é" * 300 + "0" * 300 + " " * 300,
)
"""Texts that some tokenizers change, because a normalizer, splitter or decoder loses bytes."""


def without_controls(definition: dict[str, object], controls: Collection[str]) -> dict[str, object]:
    """Return the definition for bodies, without control tokens and normalizers; ids are kept."""
    changed = unprefixed(definition)
    return changed | {
        "added_tokens": [],
        "normalizer": _alphabet(definition.get("normalizer")),
        "model": _model(definition.get("model"), controls),
    }


def _alphabet(normalizer: object) -> object:
    """Return only the steps that map a text to the vocabulary's alphabet without changing it."""
    match normalizer:
        case {"type": "Sequence", "normalizers": list(steps)}:
            kept = [found for step in steps if (found := _alphabet(step)) is not None]
            return {"type": "Sequence", "normalizers": kept} if kept else None
        case {"type": "ByteLevel"} | {
            "type": "Replace",
            "pattern": {"String": " "},
            "content": "▁",
        }:
            return normalizer
        case _:
            return None


def refuse_random(definition: dict[str, object]) -> None:
    """Refuse a model with random segmentation, whose requests would not be repeatable."""
    model = definition.get("model")
    for name in _RANDOM:
        value = model.get(name) if isinstance(model, dict) else None
        if value:
            raise PrerequisiteError(
                "the tokens of a text are not the same each time",
                why=f"the tokenizer's model sets {name} to {value}, which cuts a text at random",
                fix=f"remove {name} from the model in tokenizer.json",
            )


def refuse_lossy(round_trip: Callable[[str], str], definition: dict[str, object]) -> None:
    """Refuse a tokenizer that changes text from outside; `round_trip` encodes and decodes."""
    for text in (*_TEXTS, *_sweeps()):
        found = round_trip(text)
        if found != text:
            at = next(
                (i for i, (a, b) in enumerate(zip(text, found, strict=False)) if a != b),
                min(len(text), len(found)),
            )
            start, end = max(at - 4, 0), at + 8
            raise PrerequisiteError(
                "text from outside can't be kept as it is",
                why=f"this tokenizer ({_steps(definition)}) changes or loses characters: "
                f"{text[start:end]!a} comes back as {found[start:end]!a}",
                fix="use a model whose tokenizer is lossless: a byte-level one, or one with a "
                "fallback to bytes",
            )


def bytes_of_space_mark(definition: dict[str, object]) -> list[int]:
    """Return the ids of the bytes of `▁` if the vocabulary writes spaces with it; else none.

    Such a vocabulary can't distinguish that character in a file from a space unless it is encoded
    as bytes.
    """
    model = definition.get("model")
    match model:
        case {"byte_fallback": True, "vocab": dict(vocab)}:
            ids = vocab
        case {"byte_fallback": True, "vocab": list(pieces)}:
            ids = {piece[0]: index for index, piece in enumerate(pieces) if isinstance(piece, list)}
        case _:
            return []
    found = [ids.get(f"<0x{byte:02X}>") for byte in _SPACE.encode()]
    return [each for each in found if isinstance(each, int)] if None not in found else []


def split_for_bytes(text: str) -> list[list[str]]:
    """Return the parts of a text between the characters that such a vocabulary reads as spaces.

    No piece of a part contains a whole byte name, so that `<0x0A>` in a file is no newline.
    """
    return [_BYTE_NAME.split(part) for part in text.split(_SPACE)]


@cache
def _sweeps() -> tuple[str, ...]:
    """Return texts of all characters that Unicode normalisation changes or that are invisible."""
    blocks = (
        range(0xD800),
        range(0xE000, 0x10000),
        range(0x1D400, 0x1D800),
        range(0x2F800, 0x2FA20),
    )
    unstable = [
        character
        for block in blocks
        for character in map(chr, block)
        if unicodedata.category(character)[0] in "CMZ"
        or any(not unicodedata.is_normalized(form, character) for form in _FORMS)
    ]
    return ("".join(unstable), "a".join(unstable), " ".join(unstable))


def _steps(definition: dict[str, object]) -> str:
    names = [
        f"{key.replace('_', '-')} {', '.join(found)}"
        for key in ("normalizer", "pre_tokenizer", "model", "decoder")
        if (found := list(dict.fromkeys(_types(definition.get(key)))))
    ]
    return "; ".join(names)


def _types(step: object) -> Iterator[str]:
    match step:
        case {"type": "Sequence", **rest}:
            for name in rest.keys() & _INNER:
                inner = rest[name]
                for each in inner if isinstance(inner, list) else ():
                    yield from _types(each)
        case {"type": str(name)}:
            yield name


def unprefixed(definition: dict[str, object]) -> dict[str, object]:
    """Return the definition without adding or removing a space before a text."""
    steps = ("normalizer", "pre_tokenizer", "decoder")
    return definition | {name: _without_prefix(definition.get(name)) for name in steps}


def _model(model: object, controls: Collection[str]) -> object:
    match model:
        case {"type": "Unigram", "vocab": list(vocab), **rest}:
            pieces = [_hidden(piece, index, controls) for index, piece in enumerate(vocab)]
            return rest | {"type": "Unigram", "vocab": pieces}
        case {"vocab": dict(vocab), **rest}:
            kept = {piece: each for piece, each in vocab.items() if piece not in controls}
            merges = rest.get("merges")
            if isinstance(merges, list):
                rest["merges"] = [merge for merge in merges if _is_kept(merge, controls)]
            return rest | {"vocab": kept}
        case _:
            return model


def _without_prefix(step: object) -> object:
    match step:
        case {"type": "Sequence", **rest}:
            inner = {name: _all_without_prefix(rest[name]) for name in rest.keys() & _INNER}
            return {"type": "Sequence", **rest, **inner}
        case {"type": "Prepend"} | {"type": "Strip", "content": " "}:
            return None
        case {"type": "Metaspace", **rest}:
            rest.pop("add_prefix_space", None)
            return rest | {"type": "Metaspace", "prepend_scheme": "never"}
        case {"type": "ByteLevel", **rest}:
            return rest | {"type": "ByteLevel", "add_prefix_space": False}
        case _:
            return step


def _all_without_prefix(steps: object) -> object:
    if not isinstance(steps, list):
        return steps
    return [kept for step in steps if (kept := _without_prefix(step)) is not None]


def _is_kept(merge: object, controls: Collection[str]) -> bool:
    parts = merge.split(" ", 1) if isinstance(merge, str) else merge
    if not isinstance(parts, list):
        return True
    words = [str(part) for part in parts]
    return "".join(words) not in controls and not any(word in controls for word in words)


def _hidden(piece: object, index: int, controls: Collection[str]) -> object:
    if isinstance(piece, list) and piece and piece[0] in controls:
        # Positions are ids, so the piece is kept, under a name from the private use area.
        return [f"\ue000{index}\ue001", _UNREACHABLE]
    return piece
