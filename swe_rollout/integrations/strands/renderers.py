"""The renderer of a transformers tokenizer; both are cached.

Probing a chat template takes a tenth of a second, and a training run creates a model for each
episode.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Protocol, cast

from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.template import Pretrained
from swe_rollout.errors import PrerequisiteError

_CACHED = 16


class TransformersTokenizer(Protocol):
    """Any tokenizer of transformers, of whatever class."""

    def __len__(self) -> int: ...

    def get_vocab(self) -> dict[str, int]: ...


class PretrainedTokenizer(Pretrained, TransformersTokenizer, Protocol):
    """A fast tokenizer of transformers."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str: ...


def renderer_of(
    tokenizer: TransformersTokenizer | Renderer | str,
    *,
    tool_format: str | None = None,
    enable_thinking: bool | None = None,
) -> Renderer:
    """Return the renderer of a tokenizer, a folder or a hub name; a renderer is returned as is.

    Without `tool_format`, calls have the chat template's own format. `enable_thinking` is a
    variable of some templates; None leaves it unset. Raises PrerequisiteError for a template that
    can't be kept exact.
    """
    match tokenizer:
        case Renderer():
            return tokenizer
        case str():
            return _loaded(tokenizer, tool_format, enable_thinking)
        case _:
            pretrained = _fast(tokenizer)
            key, template = cast("Hashable", pretrained), str(pretrained.chat_template)
            return _made(key, template, tool_format, enable_thinking)


def _fast(tokenizer: TransformersTokenizer) -> Pretrained:
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise PrerequisiteError(
            f"a {type(tokenizer).__name__} can't be used",
            why="it has no tokenizer.json: the tokens of its text are not known one by one",
            fix="load the fast tokenizer of the model, with AutoTokenizer",
        )
    return cast("Pretrained", tokenizer)


def get_tokenizer(name_or_path: str) -> PretrainedTokenizer:
    """Return the tokenizer of a folder or a hub name; the same object each time.

    The code of a repository is never run.
    """
    return cast("PretrainedTokenizer", _loaded(name_or_path, None, None).tokenizer)


@lru_cache(maxsize=_CACHED)
def _loaded(name: str, tool_format: str | None, thinking: bool | None) -> Renderer:
    return Renderer.load(
        name, tool_format=tool_format, chat_template_kwargs=_kwargs(enable_thinking=thinking)
    )


@lru_cache(maxsize=_CACHED)
def _made(
    hashable: Hashable,
    template: str,
    tool_format: str | None,
    thinking: bool | None,
) -> Renderer:
    del template  # Part of the key, because users set another template.
    tokenizer = cast("Pretrained", hashable)
    kwargs = _kwargs(enable_thinking=thinking)
    made = Renderer(tokenizer, tool_format=tool_format, chat_template_kwargs=kwargs)
    try:
        # The model's own files tell its vocabulary size, and where else engines stop.
        own = _loaded(getattr(tokenizer, "name_or_path", ""), tool_format, thinking)
    except PrerequisiteError:
        return made
    if len(own.tokenizer) != len(tokenizer):
        return made
    return Renderer(
        tokenizer,
        tool_format=tool_format,
        chat_template_kwargs=kwargs,
        model_vocab=own.vocab_size,
        model_ends=own.stop_token_ids,
    )


def _kwargs(*, enable_thinking: bool | None) -> dict[str, object]:
    return {} if enable_thinking is None else {"enable_thinking": enable_thinking}
