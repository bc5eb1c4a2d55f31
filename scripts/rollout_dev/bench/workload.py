"""The workload of the token benchmarks: one conversation of tool turns for every subject.

Turn k reasons briefly, then calls `bash`; each result is the first 1,500 characters of `os.py`. A
tenth of the longer tokens is split in two halves, as a policy sometimes samples them.
"""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from rollout_dev import families
from swe_rollout.agent.encoding import PARALLELISM
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import Parameter, ToolSpec
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.testing.tokens.model import Segmenter
from swe_rollout.testing.tokens.subjects import GivenTurn
from swe_rollout.types.turn import ToolCall

PIECES = 16_000
_FILES = 200
_FAMILY = "qwen3"
_READY = "chat_template.jinja"


def library() -> Path:
    """Return the folder of Python's standard library, the source of all text."""
    return Path(sysconfig.get_paths()["stdlib"])


def vocabulary_folder() -> Path:
    """Return a folder for `Renderer.load`; takes some seconds the first time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = cache / "swe-rollout" / "bench" / f"{_FAMILY}-{PIECES}-python{platform.python_version()}"
    if not (kept / "tokenizer.json").exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as made:
            _write(Path(made) / "whole")
            shutil.rmtree(kept, ignore_errors=True)
            (Path(made) / "whole").rename(kept)
    # The template may have changed since; it is small.
    (kept / _READY).write_text(families.template(_FAMILY), "utf-8")
    return kept


def _write(target: Path) -> None:
    families.write(_FAMILY, target)
    _train().save(str(target / "tokenizer.json"))


def _train() -> Tokenizer:
    """Train a BPE that splits words like the package's own small vocabulary."""
    small = Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json"))
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer, trained.decoder = small.pre_tokenizer, small.decoder
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sources = sorted(library().glob("*.py"))[:_FILES]
    trained.train([str(source) for source in sources], trainer)
    family = families.FAMILIES[_FAMILY]
    trained.add_special_tokens([_added(text, special=True) for text in family.special])
    trained.add_tokens([_added(text, special=False) for text in family.plain])
    return trained


def large_vocabulary(of: str, tokens: int) -> str:
    """Return a folder like `of` whose vocabulary has this many tokens: further ones join two."""
    large = Path(of).with_name(f"{Path(of).name}-{tokens}")
    if not (large / "tokenizer.json").exists():
        shutil.copytree(of, large, dirs_exist_ok=True)
        definition = json.loads((Path(of) / "tokenizer.json").read_text("utf-8"))
        vocabulary, merges = definition["model"]["vocab"], definition["model"]["merges"]
        pieces, rng = list(vocabulary), random.Random(0)  # noqa: S311 - the same each time
        added = {each["content"] for each in definition["added_tokens"]}
        size = len(vocabulary | dict.fromkeys(added))
        while size < tokens:
            pair = rng.choices(pieces, k=2)
            if (joined := "".join(pair)) not in vocabulary and added.isdisjoint(pair):
                vocabulary[joined], size = size, size + 1
                merges.append(pair)
        (large / "tokenizer.json").write_text(json.dumps(definition), "utf-8")
    return str(large)


def _added(text: str, *, special: bool) -> AddedToken:
    return AddedToken(text, special=special, normalized=False)


SYSTEM: Final = "You are a SWE agent."
TASK: Final = "Fix the bug in the repository."
FIRST: Final = (Message(MessageRole.SYSTEM, SYSTEM), Message(MessageRole.USER, TASK))
BASH: Final = ToolSpec(
    "bash", "Run a command.", (Parameter("command", "What to run.", required=True),)
)
TOOLS: Final = (BASH,)
LOGPROB: Final = -0.5
NOISE: Final = 0.1
_RESULT_CHARACTERS: Final = 1500


class Workload:
    """A model's vocabulary, and turns in it."""

    def __init__(self) -> None:
        # As the command line does, for a worker too.
        os.environ.setdefault(PARALLELISM, "false")
        self.path = str(vocabulary_folder())
        self.renderer = Renderer.load(self.path)
        self.result = (library() / "os.py").read_text("utf-8")[:_RESULT_CHARACTERS]
        self._parser = self.renderer.parser
        vocabulary = Tokenizer.from_file(f"{self.path}/tokenizer.json")
        self._segmenter = Segmenter(vocabulary, self.renderer.controls)
        self._end = self.renderer.decode([self.renderer.grammar.end_id])

    def turns(self, count: int) -> tuple[GivenTurn, ...]:
        """Return turns that call a tool."""
        rng = random.Random(0)  # noqa: S311 - the same work each time
        return tuple(self._sampled(_calling(index), rng) for index in range(count))

    def last(self) -> GivenTurn:
        """Return a turn without a call, which ends an episode."""
        return self._sampled("The bug is fixed.", random.Random(0))  # noqa: S311 - as above

    def parse(self, ids: Sequence[int]) -> tuple[ToolCall, ...]:
        """Parse the calls of a turn, as the agent loop does."""
        return self._parser.parse(
            self.renderer.sampled(ids),
            tools=TOOLS,
            reasoning=self.renderer.reasoning(opened=False),
        )

    def marker(self) -> int:
        """Return the id after each result, by which a server counts the turns."""
        return next(i for i, text in self.renderer.controls.items() if text == "</tool_response>")

    def _sampled(self, text: str, rng: random.Random) -> GivenTurn:
        backend = self.renderer.tokenizer.backend_tokenizer
        usual = backend.encode(text + self._end, add_special_tokens=False).ids
        ids = tuple(self._segmenter.noisy(usual, NOISE, rng))
        return GivenTurn(ids, [LOGPROB] * len(ids), text, self.parse(ids))


def _calling(index: int) -> str:
    command = f"sed -n '{index},{index + 40}p' /testbed/src/module_{index}.py"
    body = json.dumps({"name": BASH.name, "arguments": {"command": command}})
    return (
        f"<think>\nStep {index}: the error may come from module_{index}, so I read its lines "
        f"{index} to {index + 40} and compare them with what the test expects.\n</think>\n\n"
        f"I will run a command.\n<tool_call>\n{body}\n</tool_call>"
    )
