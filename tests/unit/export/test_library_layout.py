"""The folders and fields of section 3.4, from counts and measured times (E3, E5, WE7)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from swe_rollout.export.files import Exported, export
from swe_rollout.export.library_layout import JobFacts, LibraryLayout
from swe_rollout.export.patches import PatchFilter
from swe_rollout.types.episode import StopReason
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.viewer.timeline import timeline_page
from unit.export.export_parts import PATCH, failed, reading, stream, trajectory

FACTS = JobFacts(timeout_seconds=600.0, max_tokens=4096, max_concurrent=4)
STEM = "a_20260102_030405"


async def exported(out: Path, *records: Trajectory, globs: tuple[str, ...] = ()) -> Exported:
    layout = LibraryLayout(reading(), PatchFilter(globs), timeline_page, FACTS)
    return await export(stream(*records), out, layout.format())


def summary(out: Path) -> dict[str, object]:
    value = json.loads((out / "summary.json").read_bytes())
    assert isinstance(value, dict)
    return value


async def test_an_episode_has_its_chat_patch_profile_and_timeline(tmp_path: Path) -> None:
    out = tmp_path / "out"
    await exported(out, trajectory())
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.*")) == [
        f"patches/{STEM}.patch",
        f"profiles/{STEM}_profile.json",
        f"profiles/{STEM}_timeline.html",
        "summary.json",
        f"trajectories/{STEM}.jsonl",
    ]
    lines = (out / "trajectories" / f"{STEM}.jsonl").read_bytes().splitlines()
    meta, *chat = map(json.loads, lines)
    assert (meta["role"], meta["instance_id"], meta["success"]) == ("meta", "a", True)
    assert meta["stats"]["rounds"] == 3
    assert meta["stats"]["trajectory_length"] == len(chat)
    assert meta["stats"]["step_types"]["action"] == 3
    assert chat[0]["role"] == "system"
    assert (out / "patches" / f"{STEM}.patch").read_bytes() == PATCH.encode()


async def test_several_samples_do_not_overwrite_each_other(tmp_path: Path) -> None:
    out = tmp_path / "out"
    await exported(out, trajectory(), trajectory(sample=1))
    assert sorted(path.name for path in (out / "trajectories").iterdir()) == [
        f"{STEM}.jsonl",
        "a__sample1_20260102_030405.jsonl",
    ]


async def test_the_summary_counts_by_outcome(tmp_path: Path) -> None:
    out = tmp_path / "out"
    limit = replace(trajectory("t"), stop_reason=StopReason.TURN_LIMIT, patch="")
    late = replace(trajectory("l"), stop_reason=StopReason.TIME_LIMIT)
    await exported(out, trajectory("a"), failed(trajectory("f")), limit, late)
    found = summary(out)
    assert found["total_instances"] == 4
    assert (found["failed_instances"], found["timeout_instances"]) == (1, 1)
    assert found["successful_patches"] == 2
    assert found["failed_instance_ids"] == ["f"]
    assert found["timeout_instance_ids"] == ["l"]
    statistics = found["statistics"]
    assert isinstance(statistics, dict)
    assert statistics["trajectory"]["termination_reasons"] == {
        "finished": 1,
        "SandboxError": 1,
        "turn_limit": 1,
        "time_limit": 1,
    }
    assert statistics["tool_usage"]["calls"] == {"bash": 8}
    assert (found["timeout_seconds"], found["max_tokens"]) == (600, 4096)


async def test_reaching_the_turn_limit_is_the_same_word_everywhere(tmp_path: Path) -> None:
    out = tmp_path / "out"
    await exported(out, replace(trajectory(), stop_reason=StopReason.TURN_LIMIT))
    line = (out / "trajectories" / f"{STEM}.jsonl").read_bytes().splitlines()[0]
    stats = json.loads(line)["stats"]
    assert stats["reached_max_rounds"] is True
    assert stats["termination_reason"] == "turn_limit"


async def test_a_filter_is_recorded_with_the_episode(tmp_path: Path) -> None:
    out = tmp_path / "out"
    await exported(out, trajectory(), globs=("pyproject.toml",))
    meta = json.loads((out / "trajectories" / f"{STEM}.jsonl").read_bytes().splitlines()[0])
    assert meta["dropped_globs"] == meta["dropped_paths"] == ["pyproject.toml"]


async def test_a_record_with_an_unreadable_time_blocks_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = await exported(out, replace(trajectory("x"), finished_at="../../etc"), trajectory())
    assert (done.episodes, len(done.left_out)) == (1, 1)
    assert summary(out)["total_instances"] == 1
