"""`sampling_params` as users of SGLang write them, read into our `Sampling`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from swe_rollout.agent.renderer import Renderer
from swe_rollout.errors import UsageError
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.policy import Sampling

_TEXT_ONLY: Final = frozenset(
    {"skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"}
)
"""About the text of a response, which is not read: ids are."""
_NAMES: Final = {"sampling_seed": "seed"} | {name: name for name in Sampling.model_fields}
_TOKENS: Final = TypeAdapter(tuple[int, ...])


class TurnSampling(NamedTuple):
    """How a turn is sampled, and how long it may be."""

    sampling: Sampling
    max_new_tokens: int


def read_sampling(params: Mapping[str, object], renderer: Renderer) -> TurnSampling:
    """Read sampling parameters; raises UsageError for one that would not be honoured.

    What is not given is 1.0 for the temperature and top-p, off for the rest, and 4,096 tokens.
    """
    given = {name: value for name, value in params.items() if name not in _TEXT_ONLY}
    limit = given.pop("max_new_tokens", Limits().max_new_tokens)
    _check_stops(given.pop("stop", None), given.pop("stop_token_ids", None), renderer)
    for name in [each for each in given if each not in _NAMES]:
        raise UsageError(
            f"sampling_params.{name} is not supported",
            why="it would change what is sampled, and the record would not say so",
            fix=f"leave it out; there are max_new_tokens, {', '.join(_NAMES)}",
        )
    fields = {_NAMES[name]: value for name, value in given.items() if value is not None}
    try:
        if not isinstance(limit, int) or limit < 1:
            raise UsageError("sampling_params.max_new_tokens must be an integer above 0")
        return TurnSampling(Sampling.model_validate(fields), limit)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise UsageError(f"sampling_params.{name} is wrong", why=first["msg"]) from error


def _check_stops(stop: object, stop_ids: object, renderer: Renderer) -> None:
    """Raise UsageError for stops beyond the ends of a turn, which are always set."""
    try:
        ids = () if stop_ids is None else _TOKENS.validate_python(stop_ids)
    except ValidationError as error:
        raise UsageError("sampling_params.stop_token_ids must be a list of ids") from error
    further = sorted(set(ids) - set(renderer.stop_token_ids))
    if stop or further:
        raise UsageError(
            f"a turn can't be made to stop at {stop or further}",
            why="what follows a turn depends on the token that ended it; the ends of this model "
            f"are {list(renderer.stop_token_ids)}",
            fix="leave `stop` and further `stop_token_ids` out of sampling_params",
        )
