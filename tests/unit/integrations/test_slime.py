"""slime's generate function: fields, fan-out, failures, stops that go on, and the ratio test."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.errors import UsageError
from swe_rollout.integrations import slime
from swe_rollout.testing.ratio import check_ratio, forced
from swe_rollout.types import deadline
from unit.integrations.rollouts import (
    BROKEN,
    PARALLEL,
    SUBMIT,
    Policy,
    ask,
    bash,
    encode,
    hashed_model,
    write_job,
)
from unit.integrations.slime_fields import Status, arguments
from unit.integrations.slime_parts import row_of, slime_over
from waits import until

MODEL = hashed_model(1)
WHOLE = [PARALLEL, BROKEN, "I think on.\n" + bash("make"), SUBMIT]


def policy(*texts: str, **values: Any) -> Policy:
    return Policy({0: texts or WHOLE}, {"v1": MODEL}, **values)


async def test_an_episode_becomes_a_sample_with_every_field_s14(tmp_path: Path) -> None:
    async with slime_over(write_job(tmp_path), policy()) as side:
        given = side.sample(index=7)
        sample = await side.generate(given)

    assert sample is given
    assert sample.status is Status.COMPLETED
    assert sample.reward == pytest.approx(0.4)
    assert sample.rollout_id == 7
    assert (len(sample.loss_mask), len(sample.rollout_log_probs)) == (sample.response_length,) * 2
    assert 0 < sample.response_length < len(sample.tokens)
    assert sum(sample.loss_mask) == sum(len(encode(text + "<|im_end|>")) for text in WHOLE)
    assert all(lp == 0 for lp, m in zip(sample.rollout_log_probs, sample.loss_mask, strict=True)
               if not m)  # fmt: skip
    assert all(lp < 0 for lp, m in zip(sample.rollout_log_probs, sample.loss_mask, strict=True)
               if m)  # fmt: skip
    assert sample.loss_mask[-1] == 1
    assert sample.response.startswith("Two at once.")
    assert sample.response.endswith(SUBMIT + "<|im_end|>")
    assert sample.weight_versions == ["v1"]
    assert sample.rollout_routed_experts is None
    assert sample.remove_sample is False
    assert sample.prefix_cache_info.cached_tokens == 12
    assert sample.prefix_cache_info.total_prompt_tokens > 12
    notes = sample.metadata["swe_rollout"]
    assert (notes["turns"], notes["tool_calls"], notes["stop_reason"]) == (4, 5, "submitted")
    assert notes["episode"].startswith("job/one/")


async def test_the_session_is_opened_once_and_closed_with_its_engine(tmp_path: Path) -> None:
    own = policy()
    async with slime_over(write_job(tmp_path), own) as side:
        samples = [side.sample() for _ in range(4)]
        await asyncio.gather(*(side.generate(each) for each in samples))
        assert side.sandboxes.started == 4
        assert side.sandboxes.open == 0
        assert own.closings == 0
    assert own.closings == 1
    assert len({sample.metadata["swe_rollout"]["episode"] for sample in samples}) == 4


async def test_branches_fan_out_with_one_rollout_id(tmp_path: Path) -> None:
    own = Policy({0: [ask("Look."), SUBMIT], 1: [bash("ls"), "Found."]}, {"v1": MODEL})
    async with slime_over(write_job(tmp_path), own) as side:
        main, other = await side.generate(side.sample(index=3))

    assert main.rollout_id == other.rollout_id == 3
    assert (main.reward, other.reward) == (0.4, 0.4)
    assert (main.metadata["swe_rollout"]["branch"], other.metadata["swe_rollout"]["branch"]) == (
        0, 1)  # fmt: skip
    assert other.response.endswith("Found.<|im_end|>")
    assert main.prefix_cache_info is not other.prefix_cache_info
    check_ratio([row_of(main, own), row_of(other, own)], forced({"v1": MODEL})).require()


async def test_a_limit_is_truncated_and_graded(tmp_path: Path) -> None:
    job = write_job(tmp_path, limits={"turns": 2, "contextTokens": 8192, "maxNewTokens": 512})
    async with slime_over(job, policy()) as side:
        sample = await side.generate(side.sample())
    assert (sample.status, sample.reward) == (Status.TRUNCATED, 0.2)


async def test_the_response_ends_at_slimes_bound(tmp_path: Path) -> None:
    async with slime_over(write_job(tmp_path), policy()) as side:
        whole = await side.generate(side.sample())
        for bound in (1, 5, whole.response_length - 1):
            cut = await side.generate(side.sample(), max_new_tokens=bound)
            assert cut.response_length <= bound
            assert cut.tokens == whole.tokens[: len(cut.tokens)]
            assert cut.loss_mask[-1] == 1
            assert cut.status is Status.TRUNCATED


async def test_the_sequence_ends_at_slimes_context(tmp_path: Path) -> None:
    async with slime_over(write_job(tmp_path), policy()) as side:
        whole = await side.generate(side.sample())
    bound = len(whole.tokens) - 10
    async with slime_over(write_job(tmp_path), policy(), rollout_max_context_len=bound) as side:
        cut = await side.generate(side.sample())
    assert len(cut.tokens) <= bound
    assert cut.tokens == whole.tokens[: len(cut.tokens)]
    assert cut.status is Status.TRUNCATED


async def test_a_failure_is_aborted_without_reward_or_weight(tmp_path: Path) -> None:
    async with slime_over(write_job(tmp_path), policy()) as side:
        side.sandboxes.lost = 1
        broken = await side.generate(side.sample())
        side.sandboxes.refused = 1
        unborn = await side.generate(side.sample())
        for sample in (broken, unborn):
            assert (sample.status, sample.reward) == (Status.ABORTED, None)
            assert sample.remove_sample
            assert sum(sample.loss_mask) == 0
            assert len(sample.loss_mask) == len(sample.rollout_log_probs) == sample.response_length
            assert 0 < sample.response_length < len(sample.tokens)
            assert "SandboxError" in sample.metadata["swe_rollout"]["failure"]

        # slime puts it back into its buffer: the same object is another attempt.
        again = await side.generate(broken)
    assert (again.status, again.remove_sample) == (Status.COMPLETED, False)
    assert again.reward == pytest.approx(0.4)
    assert "SandboxError" in again.metadata["swe_rollout"]["note"]
    assert "failure" not in again.metadata["swe_rollout"]


@pytest.mark.parametrize("abort_every", [None, 3, 7])
async def test_the_ratio_is_1_on_every_trained_token(
    tmp_path: Path, abort_every: int | None
) -> None:
    """Aborts and two weight versions, parallel calls, parse errors, cut turns, branches."""
    models = {"v1": MODEL, "v2": hashed_model(2)}
    plays = {0: [*WHOLE[:-1], ask("Look."), "On and on. " * 30, SUBMIT], 1: [bash("ls"), "Found."]}
    own = Policy(plays, models, abort_every=abort_every)
    limits = {"turns": 12, "contextTokens": 8192, "maxNewTokens": 44, "cutTurns": "answer"}
    async with slime_over(write_job(tmp_path, limits=limits), own) as side:
        samples = await side.generate(side.sample())

    calls = [sample.metadata["swe_rollout"]["tool_calls"] for sample in samples]
    assert calls == [6, 1]
    if abort_every:
        assert samples[0].weight_versions[:4] == ["v1", "v2", "v1", "v2"]
    rows = [row_of(sample, own) for sample in samples]
    report = check_ratio(rows, forced(models)).require()
    assert report.tokens == own.sampled > 150
    shifted = [replace(row, logprobs=[*row.logprobs[1:], 0.0]) for row in rows]
    assert not check_ratio(shifted, forced(models)).passes


class Stopping:
    """slime's abort: the flag, then its servers, until no call is in flight."""

    def __init__(self, side: Any) -> None:
        self.side = side

    async def abort(self) -> None:
        self.side.state.aborted = True
        self.side.policy.aborting.set()

    def reset(self) -> None:
        self.side.state.aborted = False
        self.side.policy.aborting.clear()


async def stopped(side: Any, sample: Any, *, at: int, **values: Any) -> Any:
    """Stop slime when the policy is asked for the `at`-th time."""
    stop = Stopping(side)
    side.policy.before = lambda _: (
        asyncio.ensure_future(stop.abort()) if len(side.policy.requests) == at else None
    )
    side.policy.pause_s = 0.05
    result = await side.generate(sample, **values)
    side.policy.before = lambda _: None
    stop.reset()
    return result


@pytest.mark.parametrize("at", [1, 4])
async def test_a_stopped_sample_goes_on_in_the_same_sandbox(tmp_path: Path, at: int) -> None:
    async with slime_over(write_job(tmp_path), policy(), partial_rollout=True) as side:
        whole = await side.generate(side.sample())
        assert side.sandboxes.started == 1
        sample = side.sample()
        half = await stopped(side, sample, at=at + 0)

        assert half is sample
        assert (half.status, half.reward) == (Status.ABORTED, None)
        assert half.response
        assert 0 < sum(half.loss_mask) < sum(whole.loss_mask)
        assert half.tokens == whole.tokens[: len(half.tokens)]
        assert len(half.loss_mask) == len(half.rollout_log_probs) == half.response_length
        assert half.weight_versions == ["v1"]
        so_far, commands = list(half.tokens), list(side.sandboxes.commands)
        assert len(side.session.episodes) == 1
        assert side.sandboxes.open == 1

        # Nothing moves while it is parked.
        await asyncio.sleep(0.3)
        assert list(side.sandboxes.commands)[: len(commands)] == commands
        done = await side.generate(half)

        assert done.status is Status.COMPLETED
        assert done.tokens == whole.tokens
        assert done.loss_mask == whole.loss_mask
        assert done.tokens[: len(so_far)] == so_far
        assert side.sandboxes.started == 2
        assert side.sandboxes.commands[:3] == side.sandboxes.commands[3:]
        assert len(side.session.episodes) == 0
        assert "ticket" not in done.metadata["swe_rollout"]
        assert "note" not in done.metadata["swe_rollout"]


async def test_a_sample_is_stopped_again_and_again_and_in_its_tools(tmp_path: Path) -> None:
    async with slime_over(write_job(tmp_path), policy(), partial_rollout=True) as side:
        whole = await side.generate(side.sample())
        sample = side.sample()
        side.sandboxes.tools.clear()
        playing = asyncio.create_task(side.generate(sample))
        await until(lambda: len(side.policy.requests) >= 1)
        side.state.aborted = True
        half = await playing
        assert half.status is Status.ABORTED
        first = half.response_length
        assert first == len(encode(PARALLEL + "<|im_end|>"))
        # The tool ends while nobody waits: the episode stays where it is.
        side.state.aborted = False
        side.sandboxes.tools.set()
        await asyncio.sleep(0.1)
        assert side.policy.requests[-1].turn == 0
        half = await stopped(side, half, at=2)
        assert half.status is Status.ABORTED
        assert half.response_length > first
        done = await side.generate(half)
    assert done.tokens == whole.tokens


async def test_the_clock_of_a_parked_episode_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"episodeSeconds": 600.0, "contextTokens": 8192, "maxNewTokens": 512}
    async with slime_over(
        write_job(tmp_path, limits=limits), policy(), partial_rollout=True
    ) as side:
        half = await stopped(side, side.sample(), at=2)
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600)
        monkeypatch.setattr(deadline, "time", later)
        done = await side.generate(half)
    assert done.status is Status.COMPLETED


async def test_old_tokens_are_masked_where_slime_asks_for_it(tmp_path: Path) -> None:
    own = policy()
    async with slime_over(
        write_job(tmp_path), own, partial_rollout=True, mask_offpolicy_in_partial_rollout=True
    ) as side:
        half = await stopped(side, side.sample(), at=3)
        old = half.response_length
        half.loss_mask = [0] * old
        done = await side.generate(half)
    assert sum(done.loss_mask[:old]) == 0
    assert sum(done.loss_mask[old:]) > 0
    assert all(lp < 0 for lp, m in zip(done.rollout_log_probs, done.loss_mask, strict=True) if m)


async def test_without_partial_rollout_a_stopped_episode_ends(tmp_path: Path) -> None:
    async with slime_over(write_job(tmp_path), policy()) as side:
        sample = await stopped(side, side.sample(), at=2)
        assert (sample.status, sample.reward, sample.tokens) == (Status.ABORTED, None, [])
        await until(lambda: side.sandboxes.open == 0)


async def test_a_parked_episode_that_is_gone_is_another_attempt(tmp_path: Path) -> None:
    async with slime_over(
        write_job(tmp_path), policy(), partial_rollout=True, swe_rollout_park_seconds=0.1
    ) as side:
        half = await stopped(side, side.sample(), at=2)
        await until(lambda: side.sandboxes.open == 0)
        done = await side.generate(half)
        assert done.status is Status.COMPLETED
        assert done.metadata["swe_rollout"]["note"].startswith("its parked episode had ended")
        assert done.metadata["instance_id"] == "one"
        assert side.sandboxes.started == 2


async def test_parked_episodes_are_bounded_in_number(tmp_path: Path) -> None:
    job = write_job(tmp_path, parallelism=2)
    async with slime_over(job, policy(), partial_rollout=True) as side:
        samples = [side.sample() for _ in range(5)]
        side.policy.pause_s = 0.05
        playing = [asyncio.create_task(side.generate(each)) for each in samples]
        await until(lambda: len(side.policy.requests) >= 3)
        await Stopping(side).abort()
        halves = await asyncio.gather(*playing)
        assert {each.status for each in halves} == {Status.ABORTED}
        assert len(side.session.episodes) <= 2
        Stopping(side).reset()
        done = await asyncio.gather(*(side.generate(each) for each in halves))
    assert {each.status for each in done} == {Status.COMPLETED}


async def test_an_attempt_that_follows_a_lost_one_is_noted(tmp_path: Path) -> None:
    job = write_job(tmp_path, retry={"attempts": 2, "backoffSeconds": 0.01})
    async with slime_over(job, policy(), partial_rollout=True) as side:
        half = await stopped(side, side.sample(), at=1)
        side.sandboxes.lost = 1

        def play_otherwise(_: GenerateRequest) -> None:
            if side.policy.released:
                side.policy.plays = {0: [SUBMIT]}

        side.policy.before = play_otherwise
        done = await side.generate(half)
    assert done.status is Status.COMPLETED
    assert "another attempt" in done.metadata["swe_rollout"]["note"]
    assert done.response == SUBMIT + "<|im_end|>"


async def test_a_list_is_never_returned_where_slime_takes_none(tmp_path: Path) -> None:
    own = Policy({0: [ask("Look."), SUBMIT], 1: ["Found."]}, {"v1": MODEL})
    async with slime_over(write_job(tmp_path), own, partial_rollout=True) as side:
        sample = await side.generate(side.sample())
    assert sample.metadata["swe_rollout"]["branches_left_out"] == 1


async def test_rewards_have_slimes_keys(tmp_path: Path) -> None:
    async with slime_over(
        write_job(tmp_path), policy(), reward_key="score", eval_reward_key="eval"
    ) as side:
        assert (await side.generate(side.sample())).reward == {"score": 0.4}
        assert (await side.generate(side.sample(), evaluation=True)).reward == {"eval": 0.4}
        side.sandboxes.refused = 1
        assert (await side.generate(side.sample())).reward is None


async def test_sampling_is_slimes(tmp_path: Path) -> None:
    async with slime_over(write_job(tmp_path), policy()) as side:
        side.sandboxes.tools.clear()
        playing = asyncio.create_task(side.generate(side.sample(), temperature=0.3, top_k=20))
        await until(lambda: bool(side.policy.requests))
        used = side.policy.requests[0].sampling
        side.sandboxes.tools.set()
        await playing
    assert (used.temperature, used.top_k) == (0.3, 20)


async def test_what_cannot_be_played_says_how_to_fix_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SWE_ROLLOUT_JOB", raising=False)
    async with slime_over(write_job(tmp_path), policy()) as side:
        with pytest.raises(UsageError, match="names no task"):
            await side.generate(side.sample(metadata={}))
        with pytest.raises(UsageError, match="no task nothing"):
            await side.generate(side.sample("nothing"))
    with pytest.raises(UsageError, match="names no rollout job"):
        await slime.generate(arguments(), None, {})
    job = write_job(tmp_path)
    with pytest.raises(UsageError, match="top-p"):
        await slime.generate(arguments(swe_rollout_job=str(job), rollout_top_p=0.9), None, {})


async def test_a_cancelled_call_ends_its_episode(tmp_path: Path) -> None:
    async with slime_over(write_job(tmp_path), policy()) as side:
        side.sandboxes.tools.clear()
        playing = asyncio.create_task(side.generate(side.sample()))
        await until(lambda: bool(side.policy.requests))
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        await until(lambda: side.sandboxes.open == 0)
