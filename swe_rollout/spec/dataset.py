"""The dataset of a RolloutJob: where its tasks come from, and which of them to use."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from swe_rollout.spec.addresses import FileAddress
from swe_rollout.spec.bounds import Globs, ShortText
from swe_rollout.spec.model import Model, OneOf, Use, added_variant, unset, variant


class RowFormat(StrEnum):
    """The dataset whose row format is used."""

    AUTO = "auto"
    SWE_BENCH = "swe-bench"
    SWE_SMITH = "swe-smith"
    R2E_GYM = "r2e-gym"
    SWE_REBENCH = "swe-rebench"
    SWE_REBENCH_V2 = "swe-rebench-v2"
    MULTI_SWE_BENCH = "multi-swe-bench"
    SWE_BENCH_PRO = "swe-bench-pro"
    SWE_BENCH_LIVE = "swe-bench-live"


class SwebenchDataset(Model):
    """Rows of SWE-bench, of a dataset modelled on it, or your own in such a format."""

    uri: FileAddress
    """`rows.jsonl`, `rows.jsonl.zst`, `rows.json` or `rows.parquet`: a path (relative to the job
    file), `file://` or `s3://`; or `organisation/name` of a dataset on a hub."""
    format: Annotated[RowFormat, Field(exclude_if=lambda name: name == "auto")] = RowFormat.AUTO
    """The format of the rows; `auto` detects it from each row's columns."""
    split: Annotated[
        str, StringConstraints(max_length=100), Field(exclude_if=lambda split: not split)
    ] = ""
    """The split of a dataset on a hub; if empty, `test`, else `train`, else all rows."""


class ReleasePairsDataset(Model):
    """Tasks made of two releases of a project, from the package index; no account, no images."""

    names: Annotated[tuple[ShortText, ...], Field(max_length=256)] = ()
    """Projects to use, such as `sqlparse`; all if empty."""


class Images(Model):
    """Where to pull the tasks' images from, instead of where the rows say."""

    rewrite: Annotated[dict[ShortText, ShortText], Field(max_length=64)] = Field(
        default_factory=dict
    )
    """Prefixes of image names, and their replacements: `swebench/: mirror.example/swe/`. The
    longest matching prefix is used."""
    registry: Annotated[ShortText, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._/:-]*)?$")] = ""
    """A registry that mirrors others, such as `mirror.example/hub`; it replaces each image's own
    registry, except for images that `rewrite` has changed."""
    digests: FileAddress | None = None
    """A JSON file that maps image names, as in the rows, to digests (`sha256:…`). Images are then
    pulled by digest, and images missing from the file are refused."""


class Dataset(OneOf):
    """The tasks. Set exactly one of `swebench`, `releasePairs` and `source`."""

    swebench: SwebenchDataset | None = variant()
    """Rows of SWE-bench, or of a dataset modelled on it."""
    release_pairs: ReleasePairsDataset | None = variant()
    """Tasks made of two releases of a project."""
    source: Use | None = added_variant()
    """A source of your own: a function or class that yields instances."""
    images: Images | None = unset()
    """Where to pull the tasks' images from; by default from where the rows say."""
    include: Globs = ()
    """Instance ids or globs to include, such as `django__*`; all if empty."""
    exclude: Globs = ()
    """Instance ids or globs to exclude."""
    slice: Annotated[str, StringConstraints(max_length=64)] = ""
    """A Python slice of the remaining tasks, such as `0:40` or `::10`."""
    quarantine: FileAddress | None = unset()
    """A file of rows that `swe-rollout audit` found bad: a path (relative to the job file),
    `file://` or `s3://`. They are excluded from the remaining tasks unless they have changed."""
    skip_bad_rows: bool = False
    """Skip rows that can't be read, reporting each, instead of refusing the job."""

    @field_validator("slice")
    @classmethod
    def _is_slice(cls, value: str) -> str:
        if value and not re.fullmatch(r"-?\d*:-?\d*(:-?[1-9]\d*)?", value):
            raise ValueError("a Python slice such as `0:40` or `::10`")
        return value
