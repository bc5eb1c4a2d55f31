"""The options of reward terms: what is wrong is said when a job is read, with its line."""

from __future__ import annotations

import pytest
import yaml

from swe_rollout.errors import SpecError
from swe_rollout.grading.rewards import REWARD_TERMS
from swe_rollout.spec.grading import RewardUse
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.load import parse_job
from swe_rollout.spec.reward_terms import OPTIONS

CHAT = {"use": "my:judge"}


def job(*terms: object) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "swe-rollout.dev/v1alpha1",
            "kind": "RolloutJob",
            "metadata": {"name": "demo"},
            "spec": {
                "dataset": {"releasePairs": {}},
                "policy": {"scripted": {}},
                "grading": {"reward": list(terms)},
            },
        },
        sort_keys=False,
    )


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ("length", "length: free: missing; limit: missing"),
        ({"use": "turns", "with": {"free": 5, "limit": 5}}, "turns: free must be below limit"),
        ({"use": "length", "with": {"free": -1, "limit": 5}}, "free: input should be greater"),
        ({"use": "length", "with": {"free": 0, "limit": 5, "flor": 1}}, "flor: no such option;"),
        ({"use": "length", "with": {"free": True, "limit": 5}}, "free: input should be a valid"),
        ({"use": "fraction", "with": {"tests": "some"}}, "fraction: tests: input should be 'all'"),
        ({"use": "format", "with": {"withoutCalls": "1"}}, "withoutCalls: input should be a valid"),
        ("judge", "set exactly one of openai, anthropic, chat; found none"),
        ({"use": "judge", "with": {"openai": {}}}, "judge: openai.model: missing"),
        (
            {"use": "judge", "with": {"openai": {"model": "m", "key": "x"}}},
            "judge: openai.key: no such field",
        ),
        ({"use": "judge", "with": {"chat": CHAT, "prompt": "?"}}, "prompt: a text with {patch}"),
        (
            {"use": "judge", "with": {"openai": {"model": "m", "apiKeyEnv": "sk-1"}}},
            "judge: apiKeyEnv is the name of an environment variable, never the key",
        ),
        (
            {"use": "judge", "with": {"openai": {"model": "m", "url": "http://u:p@h/v1"}}},
            "judge: openai.url: ",
        ),
        (
            {"use": "judge", "with": {"chat": CHAT, "lowest": 2}},
            "judge: lowest must be below highest",
        ),
    ],
)
def test_a_wrong_option_has_its_line_and_is_named(term: object, message: str) -> None:
    text = job("resolved", term)
    with pytest.raises(SpecError) as caught:
        parse_job(text, source="job.yaml")
    (problem,) = caught.value.problems
    line = next(n for n, each in enumerate(text.splitlines(), 1) if each.startswith("    - "))
    assert problem.place == f"job.yaml:{line + 1}"
    assert problem.field == "spec.grading.reward[1]"
    assert message in problem.message


def test_a_key_in_place_of_its_variables_name_is_not_shown() -> None:
    secret = "sk-" + "a1b2" * 40
    term = {"use": "judge", "with": {"openai": {"model": "m", "apiKeyEnv": secret}}}
    with pytest.raises(SpecError) as caught:
        parse_job(job(term), source="job.yaml")
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "term",
    [
        "fraction",
        "format",
        {"use": "length", "with": {"free": 8000, "limit": 16000, "worst": -0.5}, "weight": 0.1},
        {"use": "judge", "with": {"openai": {"model": "m", "apiKeyEnv": "JUDGE_KEY"}}},
    ],
)
def test_a_job_with_such_terms_is_written_as_it_was_read(term: object) -> None:
    read = parse_job(job(term), source="job.yaml")
    written = read.to_yaml_dict()
    assert RolloutJob.model_validate(written) == read
    assert RolloutJob.model_validate(written).digest == read.digest


def test_code_that_judges_is_named_as_an_extension_for_clusters_that_forbid_it() -> None:
    spec = parse_job(job("resolved", {"use": "judge", "with": {"chat": CHAT}}), source="j").spec
    assert ("grading.reward[1].with.chat", "my:judge") in spec.extension_names()


def test_options_are_those_of_built_in_terms() -> None:
    assert OPTIONS.keys() < set(REWARD_TERMS.names())


def test_terms_of_ones_own_may_have_any_options() -> None:
    use = RewardUse.model_validate({"use": "my:length", "with": {"anything": [1]}})
    assert use.with_ == {"anything": [1]}
