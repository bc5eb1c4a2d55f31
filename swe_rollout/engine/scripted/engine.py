"""ScriptedEngine: play named scenarios token by token; no model, no GPU.

It is stateless: the turn is counted in the input ids, and the scenario follows from the sample
number, so the same engine works in process and behind HTTP (`scripted.server`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.errors import BadRequestError, ContextOverflowError
from swe_rollout.engine.scripted.scenarios import Scenario, own_scenario, scenario
from swe_rollout.engine.scripted.turns import Shell
from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.huggingface import cached_file, check_source
from swe_rollout.spec.policy import ScriptedPolicy
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan

WEIGHT_VERSION = "scripted"
_OPENING = "<|im_start|>assistant\n"
_END = "<|im_end|>"
_NO_TASK = Instance(instance_id="", problem_statement="", image="")
"""Turns of the user's own are the same for all tasks."""


class ScriptedEngine(TokenEngine):
    """Plays the scenarios of a policy; every id has logprob 0.0."""

    def __init__(
        self,
        policy: ScriptedPolicy,
        instances: Sequence[Instance],
        tokenizer: Path | str,
        *,
        tool_format: str,
        context_tokens: int | None = None,
        shell: Shell | None = None,
    ) -> None:
        """`tokenizer` is a folder, or a hub name; it must know ChatML's control tokens.

        `tool_format` is the renderer's, `hermes` or `qwen_xml`. `context_tokens` is for trying out
        a full context; None sets no bound. With `shell`, scenarios call that tool alone.
        """
        self._shell = shell
        self._scenarios = tuple(scenario(name) for name in policy.scenarios)
        if policy.turns is not None:
            self._scenarios = (own_scenario(policy.turns),)
        self._own = {task: own_scenario(turns) for task, turns in policy.tasks.items()}
        self._scripts = {f"tasks.{task}": turns for task, turns in policy.tasks.items()}
        if policy.turns is not None:
            self._scripts["turns"] = policy.turns
        self._instances = {instance.instance_id: instance for instance in instances}
        self._name = str(tokenizer)
        self._tokenizer = _load(tokenizer)
        self._tool_format = tool_format
        self._context_tokens = context_tokens
        self._vocab_size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self._opening = self._encode(_OPENING)
        (self._end,) = self._control(_END)
        self._start = self._control("<|im_start|>")[0]

    def require_playable(self, max_new_tokens: int) -> None:
        """Raise UsageError if a turn of the user's own spells control tokens, or would be cut."""
        ends = {
            id_: str(token)
            for id_, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        for name, script in self._scripts.items():
            for number, turn in enumerate(script):
                ids = self._encode(own_scenario([turn]).turn(0, _NO_TASK, self._tool_format))
                place = f"spec.policy.scripted.{name}[{number}]"
                if found := next((ends[each] for each in ids if each in ends), None):
                    raise UsageError(
                        f"{place} spells the control token {found}",
                        why="a policy that writes text can't: the token would end or open a turn",
                        fix="write something else there",
                    )
                if len(ids) >= max_new_tokens:
                    raise UsageError(
                        f"{place} would be cut",
                        why=f"it has {len(ids) + 1} tokens, and spec.limits.maxNewTokens is "
                        f"{max_new_tokens}",
                        fix="raise spec.limits.maxNewTokens, or shorten the turn",
                    )

    async def info(self) -> EngineInfo:
        return EngineInfo(
            model="scripted",
            context_tokens=self._context_tokens,
            vocab_size=self._vocab_size,
            weight_version=WEIGHT_VERSION,
            tokenizer=self._name,
        )

    async def generate(self, request: GenerateRequest) -> Generation:
        """Return the ids of the turn that `input_ids` opens, cut off at `max_new_tokens`."""
        self._check(request)
        script = self._script(request)
        sampled = script[: self._room(request)]
        return Generation(
            token_ids=sampled,
            logprobs=(0.0,) * len(sampled),
            finish_reason=FinishReason.STOP if sampled == script else FinishReason.LENGTH,
            prompt_tokens=len(request.input_ids),
            weight_versions=(WeightSpan(WEIGHT_VERSION, 0, len(sampled)),) if sampled else (),
        )

    def scenario_of(self, episode: EpisodeId) -> Scenario:
        """Return the episode's scenario: its task's own, or that of its sample's number."""
        if (own := self._own.get(episode.instance)) is not None:
            return own
        return self._scenarios[episode.sample % len(self._scenarios)]

    def _script(self, request: GenerateRequest) -> tuple[int, ...]:
        """Return the ids of the open turn that are not in the input yet."""
        ids = request.input_ids.tolist()
        openings = list(self._openings(ids))
        if not openings:
            raise BadRequestError(f"the input ids hold no {_OPENING!r}: no turn is open")
        instance = self._instances.get(request.episode.instance)
        if instance is None:
            raise BadRequestError(f"no instance {request.episode.instance[:200]!r} is scripted")
        turn = self.scenario_of(request.episode).turn(
            len(openings) - 1, instance, self._tool_format, self._shell
        )
        script = (*self._encode(turn), self._end)
        # After an abort the loop continues an open turn, whose ids are a prefix of the script.
        so_far = tuple(ids[openings[-1] + len(self._opening) :])
        return script[len(so_far) :] if so_far == script[: len(so_far)] else script

    def _openings(self, ids: Sequence[int]) -> Iterator[int]:
        """Find where assistant turns begin, by id, so that text in tool results never counts."""
        size = len(self._opening)
        for position, token_id in enumerate(ids):
            if token_id == self._start and tuple(ids[position : position + size]) == self._opening:
                yield position

    def _check(self, request: GenerateRequest) -> None:
        ids = request.input_ids.ids
        if len(ids) and not (ids.min() >= 0 and ids.max() < self._vocab_size):
            raise BadRequestError(f"input ids are outside the vocabulary of {self._vocab_size}")
        if self._context_tokens is not None and len(ids) >= self._context_tokens:
            raise ContextOverflowError(
                f"The input ({len(ids)} tokens) is longer than the model's context length "
                f"({self._context_tokens} tokens)."
            )

    def _room(self, request: GenerateRequest) -> int:
        if self._context_tokens is None:
            return request.max_new_tokens
        return min(request.max_new_tokens, self._context_tokens - len(request.input_ids))

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _control(self, token: str) -> tuple[int, ...]:
        ids = self._encode(token)
        if len(ids) != 1:
            raise PrerequisiteError(
                f"the tokenizer has no control token {token}",
                why="scripted policies speak ChatML",
                fix="remove spec.policy.tokenizer, or name one of the Qwen family",
            )
        return ids


def _load(tokenizer: Path | str) -> Tokenizer:
    file = Path(tokenizer) / "tokenizer.json"
    if file.is_file():
        return Tokenizer.from_file(str(file))
    if isinstance(tokenizer, Path) or file.parent.is_dir():
        raise PrerequisiteError(
            f"no tokenizer in {tokenizer}",
            why="tokenizer.json is missing",
            fix="name the folder of a fast tokenizer, or remove spec.policy.tokenizer",
        )
    if cached := cached_file(tokenizer, file.name):
        return Tokenizer.from_file(cached)
    check_source(tokenizer)
    return Tokenizer.from_pretrained(tokenizer)
