"""slime's own rollout code plays our generate: its Sample, its abort, its fully async worker."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from trainers.slime.source import import_slime

sglang_rollout, fully_async = import_slime()

from collections.abc import AsyncIterator, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402

from slime.utils.types import Sample  # noqa: E402

from swe_rollout.integrations import slime, slime_async  # noqa: E402
from swe_rollout.integrations.slime_session import job_of, open_slime, router_of  # noqa: E402
from swe_rollout.launcher.sync import held, let_go  # noqa: E402
from swe_rollout.testing.ratio import check_ratio, forced  # noqa: E402
from swe_rollout.training.sample_bounds import FailureRateError  # noqa: E402
from trainers.tiny_model import TorchModel, save_model  # noqa: E402
from unit.integrations.rollouts import (  # noqa: E402
    BROKEN,
    END,
    PARALLEL,
    RENDERER,
    SUBMIT,
    Policy,
    ask,
    bash,
    sandboxes,
    write_job,
)
from unit.integrations.slime_fields import arguments  # noqa: E402
from unit.integrations.slime_parts import row_of  # noqa: E402
from waits import until  # noqa: E402

pytestmark = [pytest.mark.trainers, pytest.mark.filterwarnings("default")]
WHOLE = [PARALLEL, BROKEN, bash("make"), SUBMIT]
PARAMETERS = {"temperature": 0.8, "top_p": 1.0, "top_k": -1, "max_new_tokens": 4096}


class Engines:
    """Decodes as an engine does; the teacher reads at once."""

    def __init__(self, model: TorchModel) -> None:
        self.model = model

    def __call__(self, ids: Any, /, start: int = 0) -> Any:
        return self.model.decoded(ids, start)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TorchModel]:
    folder = tmp_path_factory.mktemp("model")
    return {name: TorchModel(save_model(folder / name, seed=seed))
            for seed, name in enumerate(("v1", "v2"))}  # fmt: skip


def policy_of(models: dict[str, TorchModel], **values: Any) -> Policy:
    plays = values.pop("plays", {0: WHOLE})
    return Policy(plays, {name: Engines(each) for name, each in models.items()}, **values)


class State:
    """slime's GenerateState without a tokenizer and servers."""

    def __init__(self, args: Any) -> None:
        self.args = args
        self.semaphore = asyncio.Semaphore(100)
        self.sampling_params = dict(PARAMETERS)
        self.reset()

    @contextmanager
    def dp_rank_context(self) -> Iterator[int]:
        yield 0

    def reset(self) -> None:
        self.remaining_batch_size = 0
        self.pendings: set[Any] = set()
        self.aborted = False

    submit_generate_tasks = sglang_rollout.GenerateState.submit_generate_tasks


class Buffer:
    """slime's data source: samples that came back first, then new groups."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.groups = 0
        self.made = 0
        self.returned: list[Any] = []
        self.requeued = 0

    def get_samples(self, count: int) -> list[Any]:
        found = [self.returned.pop(0) for _ in range(min(count, len(self.returned)))]
        return [*found, *(self._new() for _ in range(count - len(found)))]

    def add_samples(self, groups: list[Any]) -> None:
        self.requeued += len(groups)
        self.returned += groups

    def _new(self) -> list[Any]:
        group = []
        for _ in range(self.size):
            task = ("one", "two")[self.groups % 2]
            group.append(
                Sample(
                    index=self.made,
                    group_index=self.groups,
                    prompt="fix it",
                    metadata={"instance_id": task},
                )
            )
            self.made += 1
        self.groups += 1
        return group


@asynccontextmanager
async def slime_of(
    tmp_path: Path, policy: Policy, monkeypatch: pytest.MonkeyPatch, **values: Any
) -> AsyncIterator[Any]:
    limits = values.pop("limits", None)
    job = {} if limits is None else {"limits": limits}
    args = arguments(
        swe_rollout_job=str(write_job(tmp_path, parallelism=8, **job)),
        custom_generate_function_path="swe_rollout.integrations.slime.generate",
        rollout_global_dataset=True,
        rollout_batch_size=2,
        over_sampling_batch_size=values.pop("over_sampling_batch_size", 2),
        n_samples_per_prompt=2,
        group_rm=False,
        dynamic_sampling_filter_path="swe_rollout.integrations.slime.has_reward",
        custom_rm_path=None,
        rollout_sample_filter_path=None,
        rollout_all_samples_process_path=None,
        sglang_enable_deterministic_inference=False,
        sglang_server_concurrency=4,
        **values,
    )
    state = State(args)
    monkeypatch.setattr(sglang_rollout, "GenerateState", lambda _: state)
    opening_of = held(
        ("slime", job_of(args), router_of(args)),
        lambda: open_slime(args, stopped=lambda: slime._is_stopped(args), engine=policy),
    )
    await opening_of
    try:
        yield SimpleNamespace(args=args, state=state)
    finally:
        await let_go()


async def test_slimes_samples_pass_the_ratio_test(
    tmp_path: Path, models: dict[str, TorchModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """slime's own class, fp32, aborts, two weight versions, branches, parallel and broken calls."""
    plays = {0: [PARALLEL, BROKEN, ask("Look."), SUBMIT], 1: [bash("ls"), "Found."]}
    policy = policy_of(models, plays=plays, abort_every=9)
    async with slime_of(tmp_path, policy, monkeypatch) as side:
        buffer = Buffer(1)
        (group,) = buffer.get_samples(1)
        ((main, sub),) = await sglang_rollout.generate_and_rm_group(
            side.args, group, dict(PARAMETERS)
        )

    assert isinstance(main, Sample)
    assert (main.status, main.reward) == (Sample.Status.COMPLETED, sub.reward)
    for each in (main, sub):
        each._validate_response_metadata_lengths()
        assert Sample.from_dict(each.to_dict()).tokens == each.tokens
    rows = [row_of(main, policy), row_of(sub, policy)]
    report = check_ratio(rows, forced(models)).require()
    assert report.tokens == policy.sampled > 100
    assert {v for row in rows for v in row.weight_versions or () if v} == {"v1", "v2"}


@pytest.mark.parametrize("turns", [12, 2])
async def test_a_sample_has_the_fields_of_the_recipe_for_slime_s14(
    tmp_path: Path, models: dict[str, TorchModel], monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """Tokens, mask, logprobs, text, counts; a limit is TRUNCATED with a reward, never ABORTED."""
    policy = policy_of(models)
    limits = {"turns": turns, "contextTokens": 8192, "maxNewTokens": 512}
    async with slime_of(tmp_path, policy, monkeypatch, limits=limits) as side:
        ((sample, *_),) = Buffer(1).get_samples(1)
        params = dict(PARAMETERS)
        played = await sglang_rollout.generate_and_rm(side.args, sample, params)

    assert played is sample
    response = sample.tokens[-sample.response_length :]
    assert sample.response == RENDERER.decode(response)
    assert len(sample.loss_mask) == len(sample.rollout_log_probs) == sample.response_length
    columns = list(zip(response, sample.loss_mask, sample.rollout_log_probs, strict=True))
    said = "".join(RENDERER.decode([token]) for token, mask, _ in columns if mask)
    assert said == "".join(text + END for text in WHOLE[:turns])
    assert {logprob for _, mask, logprob in columns if not mask} == {0.0}
    is_whole = turns > len(WHOLE)
    assert sample.status == (Sample.Status.COMPLETED if is_whole else Sample.Status.TRUNCATED)
    notes = sample.metadata["swe_rollout"]
    # Two parallel calls, one that is broken, one more, and the submission.
    assert (notes["turns"], notes["tool_calls"]) == ((4, 5) if is_whole else (2, 3))
    assert sample.reward == pytest.approx(notes["turns"] / 10)


async def test_a_partial_rollout_goes_on_in_the_next_step(
    tmp_path: Path, models: dict[str, TorchModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step aborts what is unfinished; the next one finishes it, in the same sandboxes."""
    policy = policy_of(models)

    async def abort(urls: list[str]) -> None:
        del urls
        policy.aborting.set()

    async def workers(url: str) -> dict[str, list[Any]]:
        del url
        return {"workers": []}

    monkeypatch.setattr(sglang_rollout, "abort_servers_until_idle", abort)
    monkeypatch.setattr(sglang_rollout, "get", workers)
    buffer = Buffer(2)
    async with slime_of(tmp_path, policy, monkeypatch, partial_rollout=True,
                        over_sampling_batch_size=4) as side:  # fmt: skip
        # Of four groups, those of the task "two" are slow: two are enough for a step.
        policy.pause_by = {"one": 0.0, "two": 0.1}
        first, aborted = await sglang_rollout.generate_rollout_async(
            side.args, 0, buffer.get_samples
        )
        assert len(first.samples) == 2
        unfinished = [sample for group in aborted for sample in group
                      if sample.status == Sample.Status.ABORTED]  # fmt: skip
        assert unfinished
        assert all(sample.reward is None for sample in unfinished)
        so_far = {id(sample): list(sample.tokens) for sample in unfinished}
        assert any(so_far.values())
        started = sandboxes().started
        parked = [sample for sample in unfinished if sample.tokens]
        assert all(sample.metadata["start_rollout_id"] == 0 for sample in parked)

        buffer.add_samples(aborted)
        policy.aborting.clear()
        policy.pause_by = {}
        second, _ = await sglang_rollout.generate_rollout_async(side.args, 1, buffer.get_samples)
        done = {id(sample): sample for group in second.samples for sample in group}
        went_on = [done[key] for key, tokens in so_far.items() if tokens and key in done]
        assert went_on
        for sample in went_on:
            assert sample.status == Sample.Status.COMPLETED
            before = so_far[id(sample)]
            assert sample.tokens[: len(before)] == before
            assert "note" not in sample.metadata["swe_rollout"]
        fresh = sum(not tokens for tokens in so_far.values())
        assert sandboxes().started <= started + fresh + 8
    rows = [row_of(sample, policy) for sample in went_on]
    check_ratio(rows, forced(models)).require()


async def test_the_fully_async_worker_requeues_failures_and_trains_none(
    tmp_path: Path, models: dict[str, TorchModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_of(models, plays={0: [bash("ls"), SUBMIT]})
    async with slime_of(tmp_path, policy, monkeypatch) as side:
        monkeypatch.setattr(fully_async, "GenerateState", lambda _: side.state)
        buffer = Buffer(2)
        worker = fully_async.AsyncRolloutWorker(side.args, buffer, concurrency=2)
        worker.poll_interval = 0.02
        sandboxes().refused = 2
        running = asyncio.create_task(worker._loop())
        await until(lambda: worker.queue_size() >= 3)
        worker.running = False
        await running
        groups = [group for _, group in worker.get_completed_groups()]

    assert buffer.requeued >= 1
    samples = [sample for group in groups for sample in group]
    assert {sample.status for sample in samples} == {Sample.Status.COMPLETED}
    assert all(sample.reward == 0.2 for sample in samples)
    assert all(not sample.remove_sample and sum(sample.loss_mask) > 0 for sample in samples)
    assert any("another attempt" in s.metadata["swe_rollout"].get("note", "") for s in samples)
    raw, advantages = slime.reward_post_process(side.args, samples)
    assert (set(raw), set(advantages)) == ({0.2}, {0.0})


async def test_too_many_failures_stop_a_step(
    tmp_path: Path, models: dict[str, TorchModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_of(models, plays={0: [SUBMIT]})
    async with slime_of(tmp_path, policy, monkeypatch) as side:
        sandboxes().refused = 10**6
        with pytest.raises(FailureRateError, match="sandbox"):
            await sglang_rollout.generate_rollout_async(side.args, 0, Buffer(2).get_samples)
        side.state.reset()


@pytest.mark.parametrize("refused", [0, 10**6])
async def test_too_many_failures_stop_the_fully_async_rollout(
    tmp_path: Path,
    models: dict[str, TorchModel],
    monkeypatch: pytest.MonkeyPatch,
    refused: int,
) -> None:
    """slime's worker logs the error, drops the group and would take another one forever."""
    policy = policy_of(models, plays={0: [SUBMIT]})
    monkeypatch.setattr(fully_async, "get_rollout_num_engines", lambda _: 1)
    monkeypatch.setattr(fully_async, "run", asyncio.ensure_future)
    async with slime_of(tmp_path, policy, monkeypatch) as side:
        monkeypatch.setattr(fully_async, "GenerateState", lambda _: side.state)
        worker = fully_async.AsyncRolloutWorker(side.args, Buffer(2), concurrency=2)
        worker.poll_interval = 0.02
        monkeypatch.setattr(fully_async, "_get_global_worker", lambda *_: worker)
        sandboxes().refused = refused
        running = asyncio.create_task(worker._loop())
        rollout = slime_async.generate_rollout(side.args, 0, Buffer(2))
        if refused:
            with pytest.raises(FailureRateError, match="sandbox"):
                await rollout
        else:
            assert len(await rollout) == side.args.rollout_batch_size
        worker.running = False
        await running
