"""LocalModel: a causal language model of transformers, on the CPU or a GPU.

Only this module uses torch. Weights are only read from safetensors, and a repository's own code is
never run: a checkpoint is data.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from swe_rollout.errors import PrerequisiteError
from swe_rollout.huggingface import as_prerequisite_error, check_source, hub_refusals
from swe_rollout.spec.policy import TransformersPolicy

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFAULT_VERSION: Final = "default"
"""The weight version of a model from no repository, as in SGLang."""
_WHERE: Final = (
    "set spec.policy.transformers.model to a folder with config.json and *.safetensors, or to a "
    "name on the hub that this machine can reach"
)


class LocalModel:
    """A model in memory. Use it from one thread at a time."""

    def __init__(self, model: Any, torch: Any, *, name: str) -> None:  # Both are untyped here.
        """`model` is a transformers model, in evaluation mode, on its device."""
        self._model = model
        self._torch = torch
        self._last_only = "logits_to_keep" in inspect.signature(model.forward).parameters
        config = model.config.get_text_config()
        self.name = name
        self.vocab_size = int(config.vocab_size)
        found = getattr(config, "max_position_embeddings", None)
        self.context_tokens = found if isinstance(found, int) and found > 0 else None
        commit = getattr(model.config, "_commit_hash", None)
        self.weight_version = commit if isinstance(commit, str) else DEFAULT_VERSION

    @classmethod
    def load(cls, policy: TransformersPolicy) -> Self:
        """Load the model that a job names, and try it; takes seconds to minutes.

        Raises PrerequisiteError for a missing library, device or model, and for a model that can't
        read id by id.
        """
        torch, transformers = _libraries()
        device = _device(torch, policy.device)
        dtype = policy.dtype
        if dtype == "auto" and device.type == "cpu":
            dtype = "float32"
        what = f"there is no model at {policy.model} that can be run"
        with as_prerequisite_error(what, fix=_WHERE):
            model = _read(transformers, policy, dtype=dtype).to(device).eval()
        loaded = cls(model, torch, name=policy.model)
        with as_prerequisite_error(f"the model {policy.model} can't be sampled", fix=_WHERE):
            loaded._try_out()
        return loaded

    def reader(self) -> LocalReader:
        """Start a new sequence."""
        return LocalReader(self)

    def forward(self, ids: NDArray[np.int32], past: object) -> tuple[NDArray[np.float32], object]:
        """Read ids after `past`; return the logits after the last one, and the new past."""
        torch = self._torch
        options = {"logits_to_keep": 1} if self._last_only else {}
        with torch.inference_mode():
            inputs = torch.tensor(ids[None].astype(np.int64), device=self._model.device)
            found = self._model(
                input_ids=inputs, past_key_values=past, use_cache=True, return_dict=True, **options
            )
            logits: NDArray[np.float32] = found.logits[0, -1].float().cpu().numpy()
        return logits, found.past_key_values

    def _try_out(self) -> None:
        one = np.zeros(1, dtype=np.int32)
        logits, past = self.forward(one, None)
        if past is None:
            raise ValueError("it keeps no past key values: each token would read all before it")
        self.forward(one, past)
        if not np.isfinite(logits).any():
            raise ValueError("its logits are NaN")
        # Rows beyond the configured vocabulary are padding.
        self.vocab_size = len(logits)


class LocalReader:
    """A sequence with its keys and values."""

    def __init__(self, model: LocalModel) -> None:
        self._model = model
        self._past: object = None

    def read(self, ids: NDArray[np.int32], /) -> NDArray[np.float32]:
        """Read ids; return the logits for the id after the last."""
        logits, self._past = self._model.forward(ids, self._past)
        return logits


def _libraries() -> tuple[Any, Any]:
    try:
        # Imported here because they take seconds, and only this engine needs them.
        import torch
        import transformers
    except ImportError as error:
        raise PrerequisiteError(
            "an engine in this process needs PyTorch",
            why=f"{type(error).__name__}: {error}",
            fix="pip install 'swe-rollout[transformers]', on a cluster into spec.workers.image",
        ) from error
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return torch, transformers


def _device(torch: Any, wanted: str) -> Any:  # torch.device
    has_gpu = torch.cuda.is_available()
    if wanted == "auto":
        return torch.device("cuda" if has_gpu else "cpu")
    device = torch.device(wanted)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise PrerequisiteError(
            f"this machine has no device {wanted}",
            why=f"PyTorch {torch.__version__} finds {torch.cuda.device_count()} GPUs",
            fix="set spec.policy.transformers.device to cpu or auto, or install PyTorch for CUDA",
        )
    return device


def _read(transformers: Any, policy: TransformersPolicy, *, dtype: str) -> Any:
    def read(*, cached_only: bool) -> Any:  # a PreTrainedModel
        return transformers.AutoModelForCausalLM.from_pretrained(
            policy.model,
            revision=policy.revision or "main",
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=cached_only,
        )

    try:
        return read(cached_only=True)
    except (OSError, ValueError):
        # A folder with missing files fails the same way again; a name may be on the hub.
        check_source(policy.model)
        with hub_refusals(policy.model):
            return read(cached_only=False)
