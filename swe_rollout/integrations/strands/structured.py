"""An object of a pydantic model, by decoding that its JSON schema constrains."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import BaseModel

from swe_rollout.integrations.strands.exceptions import SGLangDecodingError
from swe_rollout.integrations.strands.sampling import TurnSampling

_Output = TypeVar("_Output", bound=BaseModel)


def constrained(given: TurnSampling, output_model: type[BaseModel]) -> dict[str, object]:
    """Return SGLang's sampling parameters for an object of a model."""
    sampling = given.sampling
    return {
        **sampling.model_dump(exclude={"seed"}),
        **({} if sampling.seed is None else {"sampling_seed": sampling.seed}),
        "max_new_tokens": given.max_new_tokens,
        "json_schema": json.dumps(output_model.model_json_schema()),
    }


def read_object(response: object, output_model: type[_Output]) -> _Output:
    """Return the object that a response of `/generate` holds; raises SGLangDecodingError."""
    match response:
        case {"text": str(text), "meta_info": {"finish_reason": {"type": "stop"}}}:
            return output_model.model_validate_json(text)
        case {"meta_info": {"finish_reason": {"type": str(reason)}}}:
            raise SGLangDecodingError(
                f"the structured output did not end by itself, but by {reason}: "
                "raise sampling_params.max_new_tokens"
            )
        case _:
            raise SGLangDecodingError("the response is not that of /generate")
