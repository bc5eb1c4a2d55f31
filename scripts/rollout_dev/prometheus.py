"""Build Prometheus and promtool from pinned sources, and print the folder that holds them."""

from __future__ import annotations

import argparse
import sys

from rollout_dev.dev_cluster.binaries import PROMETHEUS, ensure
from rollout_dev.dev_cluster.errors import Progress, ScriptError


def main() -> int:
    """Build what the cache lacks; this takes a minute and a half on two idle cores."""
    argparse.ArgumentParser(prog="scripts/prometheus", description=__doc__).parse_args()
    try:
        print(ensure(PROMETHEUS, Progress()))
    except ScriptError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
