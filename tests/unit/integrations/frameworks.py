"""Frameworks that are not installed here: the few names that adapters use, as recorded from them.

`tests/trainers` plays the same adapters beside the real ones.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest


def adapter(name: str, monkeypatch: pytest.MonkeyPatch, **frameworks: Mapping[str, object]) -> Any:
    """Import an adapter beside modules of these names, with `__` for a dot, and contents."""
    for path, contents in frameworks.items():
        parts = path.split("__")
        for end in range(1, len(parts) + 1):
            dotted = ".".join(parts[:end])
            module = ModuleType(dotted)
            module.__spec__ = ModuleSpec(dotted, None)
            if end == len(parts):
                module.__dict__.update(contents)
            elif dotted in sys.modules:
                continue
            monkeypatch.setitem(sys.modules, dotted, module)
    for part in (name, f"{name}_engine"):
        # What is imported below is forgotten with the test.
        own = f"swe_rollout.integrations.{part}"
        monkeypatch.setitem(sys.modules, own, ModuleType(own))
        del sys.modules[own]
    return import_module(f"swe_rollout.integrations.{name}")


class GeneratorInterface(ABC):
    """SkyRL 0.4.0, `skyrl.train.generators.base`."""

    @abstractmethod
    async def generate(self, input_batch: object) -> object: ...


@dataclass
class TrajectoryID:
    """SkyRL 0.4.0, `skyrl.train.generators.base`."""

    instance_id: str
    repetition_id: int


GENERATOR_OUTPUT = frozenset(
    {
        "prompt_token_ids", "response_ids", "rewards", "loss_masks", "stop_reasons",
        "rollout_metrics", "rollout_logprobs", "trajectory_ids", "trajectory_generation_times",
        "trajectory_time_splits", "rollout_expert_indices", "rollout_sample_support",
        "is_last_step", "env_metrics", "pixel_values", "image_grid_thw",
    }
)  # fmt: skip
"""The fields of SkyRL 0.4.0's `GeneratorOutput`."""


class RolloutWorkflow(ABC):
    """AReaL 1.0.4, `areal.api`."""

    @abstractmethod
    async def arun_episode(self, engine: object, data: dict[str, object]) -> object: ...


@dataclass
class GenerationHyperparameters:
    """AReaL 1.0.4, `areal.api.cli_args`: what the engine sets."""

    n_samples: int
    max_new_tokens: int
    max_tokens: int
    greedy: bool
    temperature: float
    top_p: float
    top_k: int
    stop_token_ids: list[int]
    skip_special_tokens: bool


@dataclass
class ModelRequest:
    """AReaL 1.0.4, `areal.api`."""

    rid: str
    input_ids: list[int]
    gconfig: GenerationHyperparameters


TENSORS = frozenset({"input_ids", "loss_mask", "logprobs", "versions", "attention_mask", "rewards"})
"""What AReaL 1.0.4's own workflows return."""


def areal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the adapter to AReaL; its tensors are numpy arrays."""
    torch = {
        "tensor": lambda values, dtype: np.array(values, dtype=dtype),
        "int32": np.int32,
        "float32": np.float32,
        "bool": np.bool_,
    }
    parameters = {"GenerationHyperparameters": GenerationHyperparameters}
    api = {"RolloutWorkflow": RolloutWorkflow, "ModelRequest": ModelRequest}
    frameworks: dict[str, Mapping[str, object]] = {
        "areal__api": api,
        "areal__api__cli_args": parameters,
        "torch": torch,
    }
    return adapter("areal", monkeypatch, **frameworks)


@dataclass
class TensorData:
    """tinker 0.38.0."""

    array: np.ndarray

    @classmethod
    def from_numpy(cls, array: np.ndarray) -> TensorData:
        assert array.dtype in (np.int64, np.float32), "the only ones it has"
        return cls(array)


@dataclass
class Datum:
    """tinker 0.38.0."""

    model_input: list[int]
    loss_fn_inputs: dict[str, TensorData] = field(default_factory=dict)


def tinker(monkeypatch: pytest.MonkeyPatch, name: str = "tinker") -> Any:
    """Import an adapter to Tinker."""
    names = {
        "Datum": Datum,
        "TensorData": TensorData,
        "ModelInput": SimpleNamespace(from_ints=lambda ids: ids),
        "SamplingParams": dict,
    }
    return adapter(name, monkeypatch, tinker=names)
