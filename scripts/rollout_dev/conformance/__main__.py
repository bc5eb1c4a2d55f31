"""Run `scripts/conformance NAME`."""

import sys

from rollout_dev.programs import Programs

CONTRACTS = Programs(
    "conformance",
    with_peers=("exec", "gateway", "parsers", "tokens"),
    others=(
        "attacks",
        "chaos",
        "crash_equal",
        "grading",
        "harnesses",
        "honest",
        "parser_time",
        "scale_audit",
        "soak",
        "templates",
    ),
)

if __name__ == "__main__":
    sys.exit(CONTRACTS.run(sys.argv[1:]))
