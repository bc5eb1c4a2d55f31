"""The stored form of a trajectory: it round-trips, and it does not change."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from checkout import ROOT
from ratios import cpu_ratio
from swe_rollout.errors import Boundary
from swe_rollout.tokens.branch import Branch, BranchKind
from swe_rollout.tokens.log import RequestProof, Segment, SegmentKind, nullable
from swe_rollout.tokens.replay import RoutedExperts, SamplingMask
from swe_rollout.types.episode import (
    EpisodeId,
    Failure,
    KeptJournal,
    Resumption,
    StopReason,
    Timing,
)
from swe_rollout.types.trajectory import ChatLine, ChatRecord, TokenPath, Trajectory
from swe_rollout.types.trajectory_json import from_json, to_json
from swe_rollout.types.turn import (
    CallStatus,
    FinishReason,
    Observation,
    TokenSpan,
    ToolCall,
    Turn,
    WeightSpan,
)
from swe_rollout.types.verdict import (
    Reward,
    RewardTerm,
    TestReport,
    TestStatus,
    Verdict,
    VerdictStatus,
)

GOLDEN = ROOT / "tests" / "golden" / "trajectory-v1.json"
BRANCHED_GOLDEN = GOLDEN.with_name("trajectory-v2.json")
FIRST = GOLDEN.with_name("trajectory-v1-first.json")
"""From before fields were added."""
PAGE = ROOT / "docs" / "reference" / "trajectory.md"

SAMPLE = Trajectory(
    episode=EpisodeId("demo", "owner__project-12", 3),
    policy="scripted:gold",
    token_ids=(11, 12, 13, 21, 22, 31, 41),
    loss_mask=(0, 0, 0, 1, 1, 0, 1),
    logprobs=(None, None, None, -0.5, -1.25, None, -2.0),
    segments=(
        Segment(SegmentKind.PROMPT, 0, 3, 0),
        Segment(SegmentKind.SAMPLED, 3, 5, 0, "v1"),
        Segment(SegmentKind.DELTA, 5, 6, 1),
        Segment(SegmentKind.SAMPLED, 6, 7, 1, "v2"),
    ),
    turns=(
        Turn(
            index=0,
            request=RequestProof(
                3, "5b10ce92f0bb26735e806acca27751e9cf0a7859c9d0fcdbd4011c0c5e60c8c9"
            ),
            text="ls é\n",
            finish_reason=FinishReason.STOP,
            completion_tokens=2,
            cached_tokens=0,
            tool_calls=(
                ToolCall(
                    CallStatus.OK,
                    '{"command": "ls"}',
                    "bash",
                    {"command": "ls"},
                    id="functions.bash:0",
                    span=TokenSpan(0, 2),
                ),
                ToolCall(CallStatus.INVALID_JSON, "{", problem="not JSON"),
            ),
            observations=(Observation("file\n", exit_code=0, duration_s=0.25),),
            weight_versions=(WeightSpan("v1", 0, 2),),
            engine_s=1.5,
            tools_s=0.25,
        ),
        Turn(
            index=1,
            request=RequestProof(
                6, "f7d23ecb1573d7e0209810773fd4abdc51deefffb3492d0b9692e74a9a2bf239"
            ),
            text="done",
            finish_reason=FinishReason.LENGTH,
            completion_tokens=1,
            cached_tokens=5,
        ),
    ),
    stop_reason=StopReason.TOKEN_LIMIT,
    patch="diff --git a/x b/x\n",
    verdict=Verdict(
        VerdictStatus.UNRESOLVED,
        TestReport({"t::a": TestStatus.MISSING}, {"t::b": TestStatus.PASSED}),
        integrity=("edits conftest.py, which steers how tests run",),
        log_tail="PASSED t::b\n",
        duration_s=2.5,
    ),
    reward=Reward((RewardTerm("resolved", 0.0), RewardTerm("short", 1.0, 0.125))),
    failure=None,
    attempt=2,
    seed=7,
    timing=Timing(1.0, 1.5, 0.25, 2.5, 5.5),
    spec_digest="0123456789ab",
    software={"swe-rollout": "0.1.0"},
    finished_at="2026-01-02T03:04:05.678+00:00",
    token_path=TokenPath("chatml", "hermes", "0123456789abcdef", template_drops_reasoning=True),
    prompt_logprobs=(None, None, None, None, None, -3.5, None),
    routed_experts=RoutedExperts(2, 1, 2, "uint8", "AAECAw=="),
    sampling_mask=SamplingMask((21, 5, 22, 41), (0, 2, 3, 4), (-0.25, 0.0, 0.0)),
    instance_digest="ba9876543210",
)

EARLIER = Branch(
    1,
    BranchKind.RESTART,
    0,
    0,
    (11, 21),
    (0, 1),
    (None, -0.75),
    (Segment(SegmentKind.SAMPLED, 1, 2, 0),),
)
"""As schema 1 had room for it, without its place in the tree."""
BRANCHED = replace(
    SAMPLE,
    turns=(
        *SAMPLE.turns,
        Turn(
            index=2,
            request=RequestProof(
                2, "8baadd18a6a30d75f8c9221fda437a4633ddfd7cdb7253e4c3fdc1772b59324c"
            ),
            text="sum",
            finish_reason=FinishReason.STOP,
            completion_tokens=1,
            cached_tokens=0,
            branch=1,
        ),
    ),
    branches=(
        Branch(
            index=1,
            kind=BranchKind.SUB_AGENT,
            parent=0,
            parent_length=5,
            token_ids=(51, 52, 61),
            loss_mask=(0, 0, 1),
            logprobs=(None, None, -0.125),
            segments=(
                Segment(SegmentKind.PROMPT, 0, 2, 0),
                Segment(SegmentKind.SAMPLED, 2, 3, 2, "v2"),
            ),
        ),
    ),
)

texts = st.text(max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)
seconds = st.floats(min_value=0, max_value=1e6)
counts = st.integers(min_value=0, max_value=2**31 - 1)
names = st.text("abcXYZ019._+-", min_size=1, max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(
    ToolCall,
    status=st.sampled_from(CallStatus),
    raw=texts,
    name=texts,
    arguments=st.dictionaries(texts, json_values, max_size=3),
    problem=texts,
    id=texts,
    span=st.none() | st.builds(TokenSpan, start=counts, end=counts),
)
observations = st.builds(
    Observation,
    text=texts,
    exit_code=st.none() | st.integers(0, 255),
    timed_out=st.booleans(),
    truncated=st.booleans(),
    duration_s=seconds,
)
turns = st.builds(
    Turn,
    index=counts,
    request=st.builds(RequestProof, length=counts, sha256=texts),
    text=texts,
    finish_reason=st.sampled_from(FinishReason),
    completion_tokens=counts,
    cached_tokens=counts,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    observations=st.lists(observations, max_size=2).map(tuple),
    weight_versions=st.lists(
        st.builds(WeightSpan, version=texts, start=counts, end=counts), max_size=2
    ).map(tuple),
    engine_s=seconds,
    tools_s=seconds,
    branch=st.just(0),
)
segments = st.builds(
    Segment,
    kind=st.sampled_from(SegmentKind),
    start=counts,
    end=counts,
    turn=counts,
    weight_version=st.none() | texts,
)
reports = st.dictionaries(texts, st.sampled_from(TestStatus), max_size=3)
verdicts = st.builds(
    Verdict,
    status=st.sampled_from(VerdictStatus),
    report=st.builds(TestReport, fail_to_pass=reports, pass_to_pass=reports),
    integrity=st.lists(texts, max_size=2).map(tuple),
    log_tail=texts,
    duration_s=seconds,
)
rewards = st.lists(
    st.builds(RewardTerm, name=texts, score=st.floats(-5, 5), weight=st.floats(-5, 5)), max_size=3
).map(lambda terms: Reward(tuple(terms)))
trajectories = st.builds(
    Trajectory,
    episode=st.builds(EpisodeId, job=names, instance=names, sample=counts),
    policy=texts,
    token_ids=st.lists(counts, max_size=4).map(tuple),
    loss_mask=st.lists(st.integers(0, 1), max_size=4).map(tuple),
    logprobs=st.lists(st.none() | st.floats(-100, 0), max_size=4).map(tuple),
    segments=st.lists(segments, max_size=2).map(tuple),
    turns=st.lists(turns, max_size=2).map(tuple),
    stop_reason=st.none() | st.sampled_from(StopReason),
    patch=texts,
    verdict=st.none() | verdicts,
    reward=st.none() | rewards,
    failure=st.none()
    | st.builds(
        Failure,
        boundary=st.sampled_from(Boundary),
        type=texts,
        message=texts,
        retryable=st.booleans(),
    ),
    attempt=counts,
    seed=st.none() | counts,
    timing=st.builds(
        Timing,
        start_s=seconds,
        engine_s=seconds,
        tools_s=seconds,
        grade_s=seconds,
        total_s=seconds,
    ),
    spec_digest=texts,
    software=st.dictionaries(texts, texts, max_size=2),
    finished_at=texts,
    token_path=st.none() | st.builds(TokenPath, family=texts, tool_format=texts, fingerprint=texts),
    branches=st.lists(
        st.builds(
            Branch,
            index=counts,
            kind=st.sampled_from(BranchKind),
            parent=st.none() | counts,
            parent_length=counts,
            token_ids=st.lists(counts, max_size=2).map(tuple),
            loss_mask=st.lists(st.integers(0, 1), max_size=2).map(tuple),
            logprobs=st.lists(st.none() | st.floats(-100, 0), max_size=2).map(tuple),
            segments=st.lists(segments, max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)


@settings(deadline=None)
@given(trajectories)
def test_every_trajectory_round_trips(trajectory: Trajectory) -> None:
    assert from_json(to_json(trajectory)) == trajectory


def test_the_stored_form_is_pinned_by_a_golden_file() -> None:
    golden = json.loads(GOLDEN.read_bytes()) | {"earlier_branches": []}
    assert json.loads(to_json(SAMPLE)) == golden
    assert list(json.loads(to_json(SAMPLE))) == list(golden)
    assert from_json(GOLDEN.read_bytes()) == replace(SAMPLE, branches=(EARLIER,))


def test_the_stored_form_of_branches_is_pinned_by_a_golden_file() -> None:
    golden = BRANCHED_GOLDEN.read_bytes()
    assert json.loads(to_json(BRANCHED)) == json.loads(golden)
    assert list(json.loads(to_json(BRANCHED))) == list(json.loads(golden))
    assert from_json(golden) == BRANCHED


def test_a_record_with_branches_says_so_in_its_schema_and_others_keep_theirs() -> None:
    """A reader that knows of no branches would lose samples, so it must not take such a record."""
    assert (SAMPLE.schema, json.loads(to_json(SAMPLE))["schema"]) == (1, 1)
    assert (BRANCHED.schema, json.loads(to_json(BRANCHED))["schema"]) == (2, 2)
    later = json.dumps({**json.loads(to_json(BRANCHED)), "schema": 3}).encode()
    with pytest.raises(ValueError, match="schema 1 or 2: found 3; a newer swe-rollout"):
        from_json(later)


def test_rewards_that_tests_wrote_are_kept_and_others_have_none() -> None:
    assert SAMPLE.verdict is not None
    scored = replace(SAMPLE, verdict=replace(SAMPLE.verdict, scores={"reward": 0.5}))
    assert from_json(to_json(scored)) == scored
    assert json.loads(to_json(scored))["verdict"]["scores"] == {"reward": 0.5}
    assert "scores" not in json.loads(to_json(SAMPLE))["verdict"]


LINE = ChatLine("assistant", "Done.", 0, 0)
ADDED: dict[str, tuple[object, object]] = {
    "chat": (
        ChatRecord(("m-1",), (LINE,)),
        {
            "models": ["m-1"],
            "messages": [{"role": "assistant", "text": "Done.", "branch": 0, "turn": 0}],
        },
    ),
    "prompts": ((LINE,), [{"role": "assistant", "text": "Done.", "branch": 0, "turn": 0}]),
    "resumption": (
        Resumption(2, ("process: server",)),
        {"times": 2, "lost": ["process: server"], "attached": 0},
    ),
    "stop_evidence": ("exit 137", "exit 137"),
    "journal": (KeptJournal("k", 3, "ab"), {"key": "k", "bytes": 3, "sha256": "ab"}),
}


@pytest.mark.parametrize("name", ADDED)
def test_a_field_that_was_added_is_stored_where_it_says_something(name: str) -> None:
    value, stored = ADDED[name]
    record = replace(SAMPLE, **{name: value})  # type: ignore[arg-type]
    assert json.loads(to_json(record))[name] == stored
    assert from_json(to_json(record)) == record
    assert name not in json.loads(to_json(SAMPLE))
    assert f"`{name}`" in PAGE.read_text()


def test_records_from_before_fields_were_added_still_load() -> None:
    first = from_json(FIRST.read_bytes())
    assert first == replace(
        SAMPLE,
        token_path=None,
        prompt_logprobs=(),
        routed_experts=None,
        sampling_mask=None,
        instance_digest="",
    )


@pytest.mark.parametrize(
    ("golden", "shown"),
    [(GOLDEN, "3 tokens sampled in 2 turns"), (BRANCHED_GOLDEN, "4 tokens sampled in 3 turns")],
)
def test_the_documented_check_runs_without_this_package(
    golden: Path, shown: str, tmp_path: Path
) -> None:
    code = PAGE.read_text().partition("```python\n")[2].partition("```")[0]
    assert "swe_rollout" not in code
    stored = tmp_path / "trajectory.json.zst"
    stored.write_bytes(zstandard.ZstdCompressor().compress(golden.read_bytes()))
    command = [sys.executable, "-c", code, str(stored)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert found == f"demo/owner__project-12/3 0.125 {shown}\n"


def test_every_stored_field_is_on_the_reference_page() -> None:
    record = json.loads(BRANCHED_GOLDEN.read_bytes())
    page = PAGE.read_text()
    turn = record["turns"][0]
    nested = [turn, turn["request"], turn["tool_calls"][0], turn["observations"][0]]
    nested += [record["verdict"], record["timing"], record["segments"][0], record["token_path"]]
    nested += [turn["tool_calls"][0]["span"], record["routed_experts"], record["sampling_mask"]]
    nested += record["branches"]
    fields = {name for part in (record, *nested) for name in part}
    assert {name for name in fields if f"`{name}`" not in page} == set()


def test_the_reward_is_a_number_and_its_terms_stand_beside_it() -> None:
    record = json.loads(to_json(SAMPLE))
    assert record["reward"] == 0.125
    assert [term["name"] for term in record["reward_terms"]] == ["resolved", "short"]


def test_no_reward_is_null_and_never_zero() -> None:
    record = json.loads(to_json(replace(SAMPLE, reward=None)))
    assert record["reward"] is None
    assert record["reward_terms"] == []
    assert from_json(to_json(replace(SAMPLE, reward=None))).reward is None


def test_tokens_not_sampled_have_a_null_logprob_in_strict_json() -> None:
    logprobs = nullable(np.array([math.nan, -0.5], dtype=np.float32))
    data = to_json(replace(SAMPLE, logprobs=logprobs))
    assert logprobs == (None, -0.5)
    assert b"NaN" not in data
    assert from_json(data).logprobs == logprobs


def test_a_stray_nan_becomes_null_and_never_breaks_the_json() -> None:
    record = json.loads(to_json(replace(SAMPLE, logprobs=(math.nan,))))
    assert record["logprobs"] == [None]


def test_half_a_surrogate_pair_in_arguments_is_replaced_and_the_rest_stays() -> None:
    call = ToolCall(CallStatus.OK, "raw", "bash", {"command": "a\ud800b", "x\udfff": ["😀", 1]})
    turn = replace(SAMPLE.turns[0], tool_calls=(call,))
    back = from_json(to_json(replace(SAMPLE, turns=(turn,))))
    assert back.turns[0].tool_calls[0].arguments == {"command": "a�b", "x�": ["😀", 1]}


def test_numbers_of_any_size_in_arguments_survive() -> None:
    call = ToolCall(CallStatus.OK, "raw", "bash", {"n": 10**40, "x": -1.5e300})
    trajectory = replace(SAMPLE, turns=(replace(SAMPLE.turns[0], tool_calls=(call,)),))
    assert from_json(to_json(trajectory)) == trajectory


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b'{"schema": 2}',
        b'{"schema": 3}',
        b'{"schema": 1}',
        b'{"schema": 1, "episode": "demo", "reward": null, "reward_terms": []}',
        b'{"schema": 1, "episode": 5, "reward": null, "reward_terms": []}',
        b'{"schema": 1, "episode": "a/b/0", "reward": 1, "reward_terms": 7}',
    ],
)
def test_other_json_is_refused_as_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(data)


def test_a_field_of_the_wrong_type_is_refused_with_its_place() -> None:
    record = json.loads(to_json(SAMPLE)) | {"token_ids": [1, "2"]}
    with pytest.raises(ValueError, match="token_ids"):
        from_json(msgspec.json.encode(record))


def test_fields_of_a_later_version_are_ignored() -> None:
    record = json.loads(to_json(SAMPLE)) | {"new_field": {"a": 1}}
    assert from_json(msgspec.json.encode(record)) == SAMPLE


def test_a_long_record_is_written_and_read_in_little_more_than_its_json() -> None:
    """When this was written: 1.7 times, and 1.5. Three times as much fails."""
    size = 100_000
    ids, mask, logprobs = tuple(range(size)), (0, 1) * (size // 2), (None, -0.5) * (size // 2)
    record = replace(SAMPLE, token_ids=ids, loss_mask=mask, logprobs=logprobs, segments=())
    data = to_json(record)
    plain = msgspec.json.decode(data)
    assert cpu_ratio(lambda: to_json(record), lambda: msgspec.json.encode(plain)) < 4
    assert cpu_ratio(lambda: from_json(data), lambda: msgspec.json.decode(data)) < 4


def test_counts_are_over_all_branches() -> None:
    alone = replace(BRANCHED, branches=())
    assert [branch.index for branch in BRANCHED.samples] == [0, 1]
    assert BRANCHED.main_branch.token_ids == BRANCHED.token_ids
    assert (BRANCHED.token_count, BRANCHED.sampled_count) == (10, 4)
    assert (alone.token_count, alone.sampled_count) == (7, 3)
    assert "10 tokens in 2 branches" in repr(BRANCHED)
