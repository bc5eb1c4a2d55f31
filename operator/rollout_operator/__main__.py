"""`python -m rollout_operator`: the controller of RolloutJobs, the entry point of its image."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

import structlog

from rollout_operator.handlers import Options, run
from rollout_operator.observed import UserCode
from swe_rollout.errors import PrerequisiteError, SweRolloutError

_DEEPEST = 20_000
"""Recursion limit. The API server accepts JSON nested 10,000 deep, and kopf must read it;
otherwise, one such object would end the watch and with it the operator."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the operator and return its exit code."""
    sys.setrecursionlimit(_DEEPEST)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    for verbose in ("kopf.objects", "kopf.activities", "aiohttp.access"):
        logging.getLogger(verbose).setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.LogfmtRenderer(),
        ]
    )
    try:
        run(_options(arguments))
    except SweRolloutError as error:
        sys.stderr.write(f"error: {error.what}\n  why   {error.why}\n  fix   {error.fix}\n")
        return error.exit_code
    return 0


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m rollout_operator", description=__doc__)
    parser.add_argument(
        "--namespace",
        action="append",
        default=[],
        help="manage jobs in this namespace; repeatable; default: all",
    )
    parser.add_argument(
        "--name", default="", help="manage jobs with the label swe-rollout.dev/operator=NAME"
    )
    parser.add_argument(
        "--user-code",
        type=UserCode,
        choices=list(UserCode),
        default=UserCode.ALLOW,
        help="whether jobs may bring files (`launch --with`), name module:attr, or set the image "
        "of their workers; default: allow",
    )
    parser.add_argument("--health-port", type=int, default=8080)
    parser.add_argument("--metrics-port", type=int, default=8081)
    chosen = parser.parse_args(arguments)
    return Options(
        image=_image(),
        namespaces=tuple(chosen.namespace),
        name=chosen.name,
        user_code=chosen.user_code,
        health_port=chosen.health_port,
        metrics_port=chosen.metrics_port,
    )


def _image() -> str:
    image = os.environ.get("WORKER_IMAGE", "")
    if not image:
        raise PrerequisiteError(
            "the operator does not know the workers' image",
            why="WORKER_IMAGE is not set",
            fix="set it to an image of this package, such as swe-rollout/worker:local",
        )
    return image


if __name__ == "__main__":
    sys.exit(main())
