"""A policy that says what a script says, with the logprobs of a real model in fp32.

What makes records hard to train on happens on purpose: a call is aborted in the middle of a turn,
and another before its first token; the weights change between and within turns; calls come in
parallel, do not parse, or are cut; a sub-agent opens a branch. Which weights sampled an id depends
on its sequence alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from swe_rollout.engine.transformers.model import LocalModel
from swe_rollout.engine.transformers.scheduler import log_softmax
from swe_rollout.testing.ratio import Logits
from swe_rollout.testing.tiny import tokenizer_path

OLD, NEW = "3", "4"
"""Weight versions, as trainers count them."""
ABORTED_TURNS = 2
"""In the first, a call ends in the middle, in the second in front of the first token."""
_SUB_TASK = "count the files of part Zq7"


def _call(tool: str, **arguments: str) -> str:
    body = json.dumps({"name": tool, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


MAIN = (
    "I look twice.\n" + _call("bash", command="ls") + "\n" + _call("bash", command="cat README.md"),
    'Now I err.\n<tool_call>\n{"name": "bash", "arguments": {"command": \n</tool_call>',
    "I ask.\n" + _call("agent", prompt=_SUB_TASK),
    "I never stop: " + "and on " * 200,
    _call("submit"),
)
SUB_AGENT = ("I count.\n" + _call("bash", command="ls | wc -l"), "There are 2 files.")


@dataclass(frozen=True)
class Sampled:
    """The answer to one call."""

    ids: list[int]
    logprobs: list[float]
    versions: list[str]
    finish: str


@dataclass
class ForcedPolicy:
    """Two models, the second of which has the newer weights, and one tokenizer."""

    models: dict[str, LocalModel]
    tokenizer: PreTrainedTokenizerFast
    aborted: set[tuple[str, int]] = field(default_factory=set)
    """Turns of episodes of which a call was aborted."""
    version_of: dict[tuple[int, ...], str] = field(default_factory=dict)
    """The weights that sampled the last id of a sequence."""
    logprob_of: dict[tuple[tuple[int, ...], float], float] = field(default_factory=dict)
    """Of the last id of a sequence, at a temperature: all episodes begin alike."""

    @classmethod
    def tiny(cls) -> ForcedPolicy:
        torch.set_num_threads(1)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(tokenizer_path())
        models = {}
        for seed, version in enumerate((OLD, NEW)):
            torch.manual_seed(seed)
            config = LlamaConfig(
                vocab_size=len(tokenizer),
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=2,
                max_position_embeddings=16384,
                # Far from uniform: a neighbour's logprob is another one.
                initializer_range=0.5,
            )
            model: Any = LlamaForCausalLM(config)
            models[version] = LocalModel(model.float().eval(), torch, name="tiny")
        return cls(models, tokenizer)

    def sample(
        self, ids: Sequence[int], *, episode: str, limit: int, temperature: float
    ) -> Sampled:
        """Say the next tokens of the turn that `ids` opens, at most `limit`."""
        script, said, turn, is_main = self._script(list(ids))
        left = script[said:]
        finish = "stop" if len(left) <= limit else "length"
        left = left[:limit]
        if is_main and turn < ABORTED_TURNS and (episode, turn) not in self.aborted:
            self.aborted.add((episode, turn))
            left, finish = left[: len(left) // 2 if turn == 0 else 0], "abort"
        logprobs, versions, so_far = [], [], list(ids)
        for position, token in enumerate(left, start=said):
            version = NEW if turn > 3 or position > 20 else OLD
            logprobs.append(self._logprob(so_far, token, version, temperature))
            so_far.append(token)
            versions.append(version)
            self.version_of[tuple(so_far)] = version
        return Sampled(left, logprobs, versions, finish)

    def teacher(self) -> dict[str | None, Logits]:
        """Each model as a function that reads a whole sequence at once."""

        def logits(model: LocalModel) -> Logits:
            def read(ids: Sequence[int]) -> NDArray[np.float32]:
                with torch.inference_mode():
                    found = model._model(input_ids=torch.tensor([list(ids)]))
                whole: NDArray[np.float32] = found.logits[0].numpy()
                return whole

            return read

        return {version: logits(model) for version, model in self.models.items()}

    def versions(self, ids: Sequence[int], start: int, mask: Sequence[int]) -> list[str | None]:
        """The weights of each token of a response."""
        return [
            self.version_of.get(tuple(ids[: start + at + 1])) if each else None
            for at, each in enumerate(mask)
        ]

    def _logprob(self, ids: list[int], token: int, version: str, temperature: float) -> float:
        """Read with keys and values, token by token, as an engine does."""
        key = (*ids, token), temperature
        if key not in self.logprob_of:
            reader = self._readers.setdefault(version, _Reader(self.models[version]))
            logprobs = log_softmax(reader.logits(ids), temperature)
            self.logprob_of[key] = float(np.float32(logprobs[token]))
        return self.logprob_of[key]

    def __post_init__(self) -> None:
        self._readers: dict[str, _Reader] = {}

    def _script(self, ids: list[int]) -> tuple[list[int], int, int, bool]:
        """Return the open turn's ids, how many are said, its number, and whether it is main's."""
        opening = self.tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
        size = len(opening)
        openings = [at for at in range(len(ids)) if ids[at : at + size] == opening]
        first = self.tokenizer.decode(ids[: openings[0]])
        is_main = _SUB_TASK not in first
        turn = len(openings) - 1
        text = (MAIN if is_main else SUB_AGENT)[turn] + "<|im_end|>"
        script = self.tokenizer.encode(text, add_special_tokens=False)
        return script, len(ids) - openings[-1] - size, turn, is_main


class _Reader:
    """Reads one sequence after the other, each but once."""

    def __init__(self, model: LocalModel) -> None:
        self._model = model
        self._ids: list[int] = []
        self._reader = model.reader()
        self._logits: NDArray[np.float32] = np.zeros(0, dtype=np.float32)

    def logits(self, ids: list[int]) -> NDArray[np.float32]:
        """The logits of what follows `ids`."""
        if len(ids) <= len(self._ids) or ids[: len(self._ids)] != self._ids:
            self._reader, self._ids = self._model.reader(), []
        new = np.array(ids[len(self._ids) :], dtype=np.int32)
        self._logits, self._ids = self._reader.read(new), list(ids)
        return self._logits
