"""`scripts/bench NAME`."""

import sys

from rollout_dev.programs import Programs

BENCHES = Programs(
    "bench",
    with_peers=("exec", "loop", "strands", "tokens", "trajectory50"),
    others=(
        "api_writes",
        "cli",
        "fork",
        "gateway",
        "grading",
        "image_change",
        "journal",
        "kv_admission",
        "live",
        "local_start",
        "observe",
        "pod_loss",
        "publish",
        "recycle",
        "sandbox_start",
        "scale",
        "snapshot",
        "sessions",
        "store",
        "viewer",
    ),
)

if __name__ == "__main__":
    sys.exit(BENCHES.run(sys.argv[1:]))
