"""Decode the tokens of a record one by one, for display only; nothing is tokenised again.

A page of tokens needs just the vocabulary, so `tokenizer.json` is read without transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from swe_rollout.agent.token_offsets import TokenBytes
from swe_rollout.agent.vocabulary import unprefixed
from swe_rollout.errors import PrerequisiteError
from swe_rollout.huggingface import cached_file
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.text.paths import expanded
from swe_rollout.text.redaction import redact
from swe_rollout.types.trajectory import Trajectory

_FILE: Final = "tokenizer.json"
_TURNS_CHECKED: Final = 3


class TokenTexts:
    """A vocabulary, which returns the text of each id."""

    def __init__(self, name: str, file: Path) -> None:
        """Read the file. Raises PrerequisiteError when it is no tokenizer."""
        from tokenizers import Tokenizer  # noqa: PLC0415 - only pages with tokens need it

        self.name = name
        try:
            definition = json.loads(file.read_text(encoding="utf-8"))
            self._tokenizer = Tokenizer.from_str(json.dumps(unprefixed(definition)))
        except Exception as error:  # the library raises a bare Exception
            raise PrerequisiteError(
                f"{file} can't be read as a tokenizer",
                why=str(error)[:300],
                fix="name a folder with the tokenizer.json of the model",
            ) from error
        self._bytes = TokenBytes(self._decode, self._tokenizer.id_to_token)

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id. A character that spans several ids goes to the last one."""
        text = self._decode(ids)
        if redact(text) != text:
            return ["⟨secret⟩"] * len(ids)
        ends = self._bytes.ends(ids, text)
        if ends is None:
            return [self._decode([each]) for each in ids]
        return [text[start:end] for start, end in pairwise([0, *ends])]

    def matches(self, trajectory: Trajectory) -> bool:
        """Return whether it decodes sampled ids to their recorded text, as the policy's does."""
        checked = trajectory.turns[:_TURNS_CHECKED]
        branches = {branch.index: branch for branch in trajectory.samples}
        for turn in checked:
            ids = branches[turn.branch].token_ids if turn.branch in branches else ()
            start = turn.request.length
            if self._decode(ids[start : start + turn.completion_tokens]) == turn.text:
                return True
        return not checked


def find_texts(name: str | None, job: Mapping[str, object], policy: str) -> TokenTexts | None:
    """Open the tokenizer of a job if it is on this machine; the hub is not contacted.

    `name` is a folder, a tokenizer.json or a repository in the hub's cache, by default the one that
    the job names. `job` is the resolved job in the plan, `policy` that of the record. Raises
    PrerequisiteError when a given `name` can't be found.
    """
    if name is not None:
        file = _file_of(name)
        if file is None:
            raise PrerequisiteError(
                f"there is no tokenizer {name} on this machine",
                why="it is no folder with tokenizer.json, and not in the hub's cache",
                fix="name a folder, or download it once: `hf download NAME tokenizer.json`",
            )
        return _opened(name, file)
    named = _named(job) or _of_policy(policy)
    file = _file_of(named) if named else None
    try:
        return _opened(named, file) if file is not None else None
    except PrerequisiteError:
        return None


@lru_cache(maxsize=2)
def _opened(name: str, file: Path) -> TokenTexts:
    return TokenTexts(name, file)


def _named(job: Mapping[str, object]) -> str:
    spec = job.get("spec")
    policy = spec.get("policy") if isinstance(spec, dict) else None
    if not isinstance(policy, dict):
        return ""
    transformers = policy.get("transformers")
    model = transformers.get("model") if isinstance(transformers, dict) else None
    return str(policy.get("tokenizer") or model or "")


def _of_policy(policy: str) -> str:
    """Return the model in `sglang:Qwen/Qwen3-8B`; for scripts, the package's tokenizer."""
    engine, _, model = policy.partition(":")
    return str(tokenizer_path()) if engine == "scripted" else model


def _file_of(name: str) -> Path | None:
    path = expanded(name)
    try:
        if path.is_file():
            return path
        if (path / _FILE).is_file():
            return path / _FILE
        found = cached_file(name, _FILE)
    except (OSError, ValueError):
        return None
    return None if found is None else Path(found)
