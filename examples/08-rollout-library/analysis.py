"""Look at what came out: turns, calls, rewards; and write it to a file.

swe-rollout run examples/01-release-pairs/job.yaml --store runs/demo
python examples/08-rollout-library/analysis.py runs/demo trajectory.json
"""

import sys
from pathlib import Path

from swe_rollout import read_trajectories
from swe_rollout.types.trajectory_json import to_json

if __name__ == "__main__":
    _, store, out = sys.argv
    for trajectory in read_trajectories(store):
        calls = [call.name or call.status for turn in trajectory.turns for call in turn.tool_calls]
        reward = "none" if trajectory.reward is None else f"{trajectory.reward.value:g}"
        print(f"{trajectory.episode}: {len(trajectory.turns)} turns, {len(calls)} calls, {reward}")
    Path(out).write_bytes(to_json(trajectory))
