"""The policy of a RolloutJob: who acts, and how it samples."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import (
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from swe_rollout.spec.addresses import HttpUrl, ModelFolder, local_path
from swe_rollout.spec.bounds import Seconds, ShortText
from swe_rollout.spec.model import Model, OneOf, Parameters, Use, added_variant, variant

_Day = Annotated[date, WithJsonSchema({"type": "string", "format": "date", "maxLength": 10})]
ScenarioName = Literal["gold", "wrong", "empty", "malformed", "garbage", "loop"]


LARGEST_MASK: Final = 4096
"""The most ids that an engine reports per sampled token."""


class RoutedExpertsSpec(Model):
    """The shape of the experts that a server with `--enable-return-routed-experts` returns."""

    layers: Annotated[int, Field(ge=1, le=10_000)]
    """Layers of the model, dense ones included."""
    topk: Annotated[int, Field(ge=1, le=1000)]
    """Experts per token."""


class ReplaySpec(Model):
    """Extra data for trainers that replay the sampling. It makes records larger."""

    routed_experts: RoutedExpertsSpec | None = None
    """The experts that processed each token; not recorded by default."""
    sampling_mask: bool = False
    """Record the ids that topK, topP and minP left at each step, and the logprob among them."""
    prompt_logprobs: bool = False
    """Record logprobs of tokens that the harness added after the first prompt."""


class SglangPolicy(Model):
    """SGLang servers, called by their native `/generate`."""

    url: HttpUrl | None = None
    """The server or router, such as `http://sglang:30000`; if unset, `workers` are called."""
    workers: Annotated[tuple[HttpUrl, ...], Field(max_length=256)] = ()
    """The servers themselves. Without `url`, episodes are spread over them, each kept on one; with
    a router as `url`, generations go through it, but aborts, pauses and weights go to the
    servers."""
    api_key_env: Annotated[str, StringConstraints(max_length=128)] | None = None
    """The environment variable that holds the API key; never the key itself."""
    timeout_seconds: Seconds = 900.0
    """Limit for one generation."""
    concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """The most concurrent calls to one server; unlimited by default."""
    cache_tokens: Annotated[int, Field(ge=0, le=2**40)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """The KV cache of one server that this job may fill, in tokens; by default all that it reports.
    Episodes whose contexts do not fit wait in the worker. The job's workers divide it; 0 lets all
    episodes call at any time."""
    retries: Annotated[int, Field(ge=0, le=1000)] = 5
    """Retries of a call that was refused because of load."""
    outage_seconds: Seconds = 1800.0
    """How long an episode waits, with its clock stopped, for a server that is down."""
    record: ReplaySpec = ReplaySpec()
    """Data to keep beside ids and logprobs."""

    @model_validator(mode="after")
    def _has_a_server(self) -> Self:
        if self.url is None and not self.workers:
            raise ValueError("set url, or list workers")
        return self

    @property
    def address(self) -> str:
        """The policy's address (the first if there are several), for people."""
        return self.url or self.workers[0]


_MOST_SCRIPT_BYTES: Final = 1 << 20
_MOST_ARGUMENT_CHARS: Final = 1 << 16
_MOST_DEPTH: Final = 32


class ScriptedTurn(Model):
    """One turn of a script."""

    say: Annotated[str, StringConstraints(max_length=65_536)] = ""
    """What the policy says before its call."""
    call: Annotated[
        dict[Annotated[str, StringConstraints(min_length=1, max_length=64)], dict[str, Any]],
        Field(max_length=1),
    ] = Field(default_factory=dict)
    """One tool by its name, with its arguments: `{bash: {command: ls}}`."""

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if not self.say.strip() and not self.call:
            raise ValueError("a turn needs `say`, or one `call` such as {bash: {command: ls}}")
        if _depth(self.call) > _MOST_DEPTH:
            raise ValueError(f"arguments of a call are nested at most {_MOST_DEPTH} deep")
        if len(json.dumps(self.call)) > _MOST_ARGUMENT_CHARS:
            most = _MOST_ARGUMENT_CHARS
            raise ValueError(f"the arguments of a call have at most {most} characters")
        return self


def _depth(value: object) -> int:
    """Return how deeply lists and mappings are nested; counting ends behind the limit."""
    level, found = [value], 0
    while level and found <= _MOST_DEPTH + 1:
        inner = [each for each in level if isinstance(each, dict | list)]
        level = [
            part for each in inner for part in (each.values() if isinstance(each, dict) else each)
        ]
        found += bool(inner)
    return found


def read_script(value: object, info: ValidationInfo) -> object:
    """Return the turns in a file that a job file names; anything else as it is."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, str):
        return value
    if not isinstance(info.context, Path):
        raise ValueError("a list of turns; only a job file can name a file of them")  # noqa: TRY004 (pydantic's)
    file = Path(local_path(value, info))
    try:
        if file.stat().st_size > _MOST_SCRIPT_BYTES:
            raise ValueError(f"a file of at most {_MOST_SCRIPT_BYTES >> 10} KiB with turns")
        found: object = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise ValueError(f"a file with turns; {file} can't be read: {error.strerror}") from error
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"a file with turns; {file} is no YAML: {why:.200}") from error
    return tuple(found) if isinstance(found, list) else found


_Script = Annotated[
    tuple[ScriptedTurn, ...],
    Field(min_length=1, max_length=256),
    BeforeValidator(read_script),
]


class ScriptedPolicy(Model):
    """A policy that plays scenarios, or turns of your own, token by token, without a model."""

    scenarios: Annotated[tuple[ScenarioName, ...], Field(min_length=1, max_length=256)] = (
        "gold",
        "wrong",
        "malformed",
        "loop",
    )
    """Sample k plays scenario k modulo their number."""
    turns: _Script | None = Field(default=None, exclude_if=lambda value: value is None)
    """Turns of your own in place of scenarios, or in a job file the name of a YAML file with them.
    After the last, the policy ends without a call."""
    tasks: Annotated[dict[ShortText, _Script], Field(max_length=256)] = Field(
        default_factory=dict, exclude_if=lambda value: not value
    )
    """Turns for single tasks, by instance id. The others play `turns` or `scenarios`."""

    @model_validator(mode="after")
    def _plays_one_script(self) -> Self:
        # A cluster fills in the default.
        default = type(self).model_fields["scenarios"].default
        if self.turns is not None and self.scenarios != default:
            raise ValueError("set `turns` or `scenarios`, not both")
        return self


class TransformersPolicy(Model):
    """A causal language model in the worker's own process, on its CPU or GPU."""

    model: ModelFolder
    """A folder with the model, or its name on the hub."""
    device: Annotated[
        str, StringConstraints(pattern=r"^(auto|cpu|cuda(:[0-9]{1,3})?)$", max_length=8)
    ] = "auto"
    """`cpu`, `cuda` or `cuda:1`; `auto` takes the first GPU, or the CPU if there is none."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """`auto` takes float32 on the CPU and the checkpoint's own type on a GPU."""
    revision: Annotated[str, StringConstraints(max_length=128)] | None = None
    """The commit, tag or branch of a model on the hub; by default its default branch."""
    context_tokens: Annotated[int, Field(ge=16, le=2**24)] | None = None
    """Limit for prompt and completion together; by default the model's own."""
    cache_tokens: Annotated[int, Field(ge=16, le=2**31)] = 32_768
    """Size of the KV cache in tokens, for all episodes together: 0.1 MB each for a model of 0.6 B
    parameters in bfloat16. A call that does not fit waits; a call that is alone always fits."""


class ChatApi(Model):
    """How any chat API is called."""

    model: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    """The model's name, as the API knows it."""
    api_key_env: Annotated[str, StringConstraints(max_length=128)] | None = None
    """The environment variable that holds the API key; never the key itself."""
    timeout_seconds: Seconds = 900.0
    """Limit for one response."""
    concurrency: Annotated[int, Field(ge=1, le=100_000)] = 64
    """The most concurrent calls of one worker."""
    retries: Annotated[int, Field(ge=0, le=1000)] = 8
    """Retries of a call that was lost, or refused because of load."""


class OpenaiPolicy(ChatApi):
    """A server with OpenAI's chat completions. Its episodes have no tokens: never for training."""

    url: HttpUrl = "https://api.openai.com/v1"
    """The base address, to which `/chat/completions` is appended."""
    urls: Annotated[tuple[HttpUrl, ...], Field(max_length=64)] = ()
    """Several servers of one model, in place of `url`: each episode stays on one of them, and moves
    to another if that one can't be reached."""
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """The server's name for the limit of a completion; older servers know only `max_tokens`."""


class AnthropicPolicy(ChatApi):
    """A server with Anthropic's messages. Its episodes have no tokens: never for training."""

    url: HttpUrl = "https://api.anthropic.com"
    """The base address, to which `/v1/messages` is appended."""
    prompt_cache: bool = True
    """Let the API cache the conversation so far: the next call pays a tenth to read it."""

    def check(self, sampling: Sampling) -> None:
        """Raise ValueError for sampling that the API does not support."""
        refused = {
            "sampling.seed": sampling.seed is not None,
            "sampling.minP": sampling.min_p > 0,
            "sampling.temperature above 1": sampling.temperature > 1,
        }
        if names := [name for name, is_set in refused.items() if is_set]:
            raise ValueError(f"Anthropic's API has no {', '.join(names)}: remove it")


class Policy(OneOf):
    """The policy. Set exactly one of `sglang`, `scripted`, `engine`, `transformers`, `openai`,
    `anthropic` and `chat`.
    """

    sglang: SglangPolicy | None = variant()
    """An SGLang server."""
    scripted: ScriptedPolicy | None = variant()
    """Named scenarios, for trials and tests."""
    engine: Use | None = added_variant()
    """An engine of your own, which samples token ids."""
    transformers: TransformersPolicy | None = added_variant()
    """A model in the worker's own process."""
    openai: OpenaiPolicy | None = added_variant()
    """A server with OpenAI's chat completions: text only, never for training."""
    anthropic: AnthropicPolicy | None = added_variant()
    """A server with Anthropic's messages: text only, never for training."""
    chat: Use | None = added_variant()
    """A function of your own that responds to a conversation: text only, never for training."""

    @property
    def has_tokens(self) -> bool:
        """Whether its episodes have tokens, and can be trained on."""
        return self.openai is None and self.anthropic is None and self.chat is None

    tokenizer: ModelFolder | None = None
    """A folder or hub name with tokenizer and chat template; by default the one that the engine
    names, or for a scripted policy the package's small one."""
    chat_template_kwargs: Parameters = Field(default_factory=dict)
    """Extra variables of the chat template, such as `{enable_thinking: false}`."""
    template_date: _Day = date(2026, 1, 1)
    """The date that a chat template shows the model, independent of the clock, so that all workers
    of a job, also after a resume, render the same prompt."""


class Sampling(Model):
    """How the policy samples."""

    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    """Sampling temperature; 0 always takes the most likely token."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Keep the most likely tokens up to this total probability; 1 keeps all."""
    top_k: Annotated[int, Field(ge=-1, le=10_000_000)] = -1
    """Keep this many of the most likely tokens; -1 keeps all."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Keep tokens at least this likely relative to the most likely one; 0 keeps all."""
    seed: Annotated[int, Field(ge=-(2**53), le=2**53)] | None = None
    """The base of all samples' seeds; by default the engine chooses."""
