"""Job files and the arguments of extensions in them, written by the author of a job."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache

import yaml
from pydantic import ValidationError

from rollout_dev.fuzz.schema import SchemaWriter
from rollout_dev.fuzz.surface import promise, split_head, surface, with_head
from rollout_dev.fuzz.surfaces import real
from swe_rollout.agent.tools import TOOLS
from swe_rollout.errors import SpecError, SweRolloutError
from swe_rollout.extension import ExtensionError
from swe_rollout.grading.rewards import REWARD_TERMS
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.load import parse_job

_MOST_CHANGES = 16
_AS_JSON = 0.15


def _samples() -> Sequence[bytes]:
    found = [*real.files(real.ROOT / "examples", "**/*.yaml")]
    found += real.files(real.ROOT / "tests" / "e2e", "**/*.yaml")
    return [each for each in found if b"RolloutJob" in each] or found


@cache
def _schema() -> dict[str, object]:
    return RolloutJob.model_json_schema(by_alias=True)


@cache
def _accepted_samples() -> Sequence[object]:
    documents: list[object] = [yaml.safe_load(each) for each in _samples()]
    return [each for each in documents if _accepts(each)]


def _accepts(document: object) -> bool:
    if not isinstance(document, dict) or not document.keys() >= {"apiVersion", "kind"}:
        return False
    try:
        RolloutJob.model_validate_json(
            json.dumps(document), strict=True, by_alias=True, by_name=False
        )
    except ValidationError:
        return False
    except Exception:  # noqa: BLE001 - what the surface is there to find
        return True
    return True


def _write_job(chance: random.Random) -> bytes:
    """Write a valid job in one of the possible notations."""
    writer = SchemaWriter(_schema(), chance)
    start = chance.choice(_accepted_samples())
    job = writer.grown(start, changes=chance.randint(1, _MOST_CHANGES), accepts=_accepts)
    if chance.random() < _AS_JSON:
        return json.dumps(job, ensure_ascii=chance.random() < 0.5).encode()  # noqa: PLR2004
    text: str = yaml.safe_dump(
        job,
        default_flow_style=chance.choice((None, True, False)),
        allow_unicode=chance.random() < 0.5,  # noqa: PLR2004 - a coin
        sort_keys=chance.random() < 0.5,  # noqa: PLR2004
        width=chance.choice((20, 80, 10_000)),
        explicit_start=chance.random() < 0.2,  # noqa: PLR2004 - now and then
    )
    return text.encode()


def _read_job(data: bytes) -> None:
    text = data.decode("utf-8-sig", "surrogateescape")
    job = parse_job(text, source="job.yaml")
    again = RolloutJob.model_validate_json(json.dumps(job.to_yaml_dict()), by_alias=True)
    promise(again.digest == job.digest, "a job that is written and read again is another one")


JOB_YAML = surface("job-yaml", _read_job, SpecError, samples=_samples, write=_write_job)


def _arguments() -> Sequence[bytes]:
    """Return some arguments for each built-in extension that needs nothing else."""
    made: list[dict[str, object]] = [
        {},
        {"command": ["server"], "tools": [{"name": "x", "description": "y"}]},
        {"url": "http://tools.example:80/mcp", "apiKeyEnv": "KEY", "headersEnv": {"X-A": "B"}},
        {"path": "tools", "sha256": "0" * 64},
        {"timeout_s": 3, "limit": 10, "name": "x"},
        {"at": 10, "over": 2.5, "weight": 1.0, "pattern": "a+"},
        {"model": "m", "url": "http://judge.example/v1", "prompt": "p", "rubric": "r"},
    ]
    kinds = [f"tool {name}" for name in TOOLS.names()] + [f"term {n}" for n in REWARD_TERMS.names()]
    return [with_head(kind, json.dumps(each).encode()) for kind in kinds for each in made]


def _make(data: bytes) -> None:
    head, body = split_head(data)
    kind, _, name = head.partition(" ")
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError):
        return
    if not isinstance(value, dict) or ":" in name:
        return
    (TOOLS if kind == "tool" else REWARD_TERMS).load(name, value)


EXTENSION_ARGS = surface(
    "extension-args", _make, ExtensionError, SweRolloutError, samples=_arguments
)
