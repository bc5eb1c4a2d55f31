"""Policies without tokens: what their APIs could only ignore is refused."""

from __future__ import annotations

import json

import pytest

from swe_rollout.errors import SpecError
from swe_rollout.spec.job import RolloutJob
from unit.spec.spec_parts import GOOD, parsed

OPENAI = "openai: {model: m}"
ANTHROPIC = "anthropic: {model: m}"
CHAT = "chat: {use: 'mine:answer'}"
TRANSFORMERS = "transformers: {model: m}"


def job(policy: str, **overrides: object) -> RolloutJob:
    return parsed(text(policy), *(f"spec.{n}={json.dumps(v)}" for n, v in overrides.items()))


def text(policy: str) -> str:
    return GOOD.replace("scripted: {}", policy)


@pytest.mark.parametrize("policy", [OPENAI, ANTHROPIC, CHAT])
@pytest.mark.parametrize(
    ("field", "value"),
    [("agent", {"toolFormat": "hermes"}), ("policy.tokenizer", "some/model")],
)
def test_what_only_tokens_need_is_refused_without_them(
    policy: str, field: str, value: object
) -> None:
    assert not job(policy).spec.policy.has_tokens
    with pytest.raises(SpecError, match="can't be set for a policy without tokens"):
        parsed(text(policy), f"spec.{field}={json.dumps(value)}")


@pytest.mark.parametrize("policy", [OPENAI, ANTHROPIC, CHAT])
@pytest.mark.parametrize(
    "agent",
    [{"use": "react"}, {"use": "swe"}, {"toolFormat": "action_json"}, {"toolFormat": "own:form"}],
)
def test_calls_in_the_words_need_nothing_of_an_api(policy: str, agent: object) -> None:
    assert job(policy, agent=agent).spec.agent.tool_format != "auto"


@pytest.mark.parametrize("sampling", [{"seed": 1}, {"minP": 0.1}, {"temperature": 1.5}])
def test_anthropic_s_api_has_less_sampling(sampling: dict[str, float]) -> None:
    assert job(OPENAI, sampling=sampling)
    with pytest.raises(SpecError, match="Anthropic's API has no sampling"):
        job(ANTHROPIC, sampling=sampling)


def test_a_model_in_the_process_has_tokens() -> None:
    spec = job(TRANSFORMERS, sampling={"seed": 1}).spec
    assert spec.policy.has_tokens


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:1234", "cpu:0", ""])
def test_a_device_is_one_of_pytorch_s(device: str) -> None:
    with pytest.raises(SpecError):
        job(f"transformers: {{model: m, device: '{device}'}}")


@pytest.mark.parametrize("url", ["http://169.254.169.254/v1", "http://u:p@host/v1", "ftp://host"])
@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_an_api_is_where_an_engine_may_be(api: str, url: str) -> None:
    with pytest.raises(SpecError) as caught:
        job(f"{api}: {{model: m, url: '{url}'}}")
    assert "u:p" not in str(caught.value)


def test_how_an_api_is_called_is_no_part_of_what_a_job_compares() -> None:
    one = job(OPENAI).digest
    assert job("openai: {model: m, url: 'http://other/v1', retries: 1}").digest == one
    local = job(TRANSFORMERS).digest
    assert job("transformers: {model: m, cacheTokens: 99}").digest == local
    assert job("transformers: {model: m, dtype: bfloat16}").digest != local
    assert job("openai: {model: n}").digest != one
    assert job("openai: {model: m, maxTokensField: max_tokens}").digest != one


def test_an_extension_of_ones_own_is_named() -> None:
    assert ("policy.chat", "mine:answer") in job(CHAT).spec.extension_names()
