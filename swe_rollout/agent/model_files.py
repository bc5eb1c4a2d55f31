"""The files of a model: its tokenizer, and the token settings of its configuration.

This is the only module of the token path that imports transformers. Used by `renderer`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from swe_rollout.agent.template import Pretrained
from swe_rollout.huggingface import check_source, check_tokenizer_folder, hub_refusals


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The data that the token path takes from a model's files."""

    tokenizer: Pretrained
    model_vocab: int | None
    """The size of the model's vocabulary; None if the configuration does not say."""
    model_ends: frozenset[int]
    """Ids at which an engine stops, according to the model's configuration."""


def read_model_files(name_or_path: str) -> ModelFiles:
    """Read a folder, or a name on the hub, whose local cache is tried first.

    Raises OSError, ValueError, or whatever transformers raises for files that it can't use.
    """
    try:
        return _read(name_or_path, cached_only=True)
    except (OSError, ValueError):
        # An incomplete folder would fail the same way again; a name may be on the hub.
        check_tokenizer_folder(name_or_path)
        check_source(name_or_path)
        with hub_refusals(name_or_path):
            return _read(name_or_path, cached_only=False)


def _read(name_or_path: str, *, cached_only: bool) -> ModelFiles:
    with _without_torch_advice():
        # The import takes a second, and only the token path needs it.
        import transformers  # noqa: PLC0415
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        name_or_path, local_files_only=cached_only
    )
    read = transformers.PretrainedConfig.get_config_dict
    config, _ = read(name_or_path, local_files_only=cached_only)
    try:
        generation, _ = read(
            name_or_path, _configuration_file="generation_config.json", local_files_only=cached_only
        )
    except OSError:
        generation = {}
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerFast):
        raise ValueError(f"{type(tokenizer).__name__} has no tokenizer.json")  # noqa: TRY004
    # transformers types a message as a dict of strings, but templates read calls and tools too.
    ends = _ends_of(config) | _ends_of(generation)
    return ModelFiles(cast("Pretrained", tokenizer), _vocab_of(config), ends)


def _vocab_of(config: dict[str, object]) -> int | None:
    nested = config.get("text_config")
    size = config.get("vocab_size", nested.get("vocab_size") if isinstance(nested, dict) else None)
    return size if isinstance(size, int) else None


def _ends_of(config: dict[str, object]) -> frozenset[int]:
    match config.get("eos_token_id"):
        case list(ends):
            return frozenset(end for end in ends if isinstance(end, int))
        case int(end):
            return frozenset({end})
        case _:
            return frozenset()


@contextmanager
def _without_torch_advice() -> Iterator[None]:
    """Keep transformers from warning on stderr that PyTorch is missing: it is not needed here."""

    def keep(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("PyTorch was not found")

    logger = logging.getLogger("transformers")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)
