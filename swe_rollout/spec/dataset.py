"""The dataset of a RolloutJob: which tasks, and which of them are taken."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from swe_rollout.spec.addresses import ObjectUrl
from swe_rollout.spec.bounds import Globs, ShortText
from swe_rollout.spec.model import Model, OneOf, Use, added_variant, unset, variant


class RowFormat(StrEnum):
    """The dataset whose form rows have."""

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
    """Rows of SWE-bench, of a dataset made after it, or your own in such a form."""

    uri: ObjectUrl
    """`rows.jsonl`, `rows.jsonl.zst`, `rows.json` or `rows.parquet`: a path (relative to the job
    file), `file://` or `s3://`; or `organisation/name` of a dataset on a hub."""
    format: Annotated[RowFormat, Field(exclude_if=lambda name: name == "auto")] = RowFormat.AUTO
    """Whose form the rows have; `auto`: each row's columns tell."""
    split: Annotated[
        str, StringConstraints(max_length=100), Field(exclude_if=lambda split: not split)
    ] = ""
    """The part of a dataset on a hub to take; empty: `test`, else `train`, else all."""


class ReleasePairsDataset(Model):
    """Tasks made of two releases of a project, from the package index; no account, no images."""

    names: Annotated[tuple[ShortText, ...], Field(max_length=256)] = ()
    """Projects to take, such as `sqlparse`; empty: all."""


class Images(Model):
    """Where the tasks' images are pulled from, instead of the places that rows name."""

    rewrite: Annotated[dict[ShortText, ShortText], Field(max_length=64)] = Field(
        default_factory=dict
    )
    """Beginnings of images, and what to put in their place: `swebench/: mirror.example/swe/`. The
    longest that matches is used."""
    registry: Annotated[ShortText, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._/:-]*)?$")] = ""
    """A registry that mirrors others, such as `mirror.example/hub`; it takes the place of each
    image's own. Not for images that `rewrite` has changed."""
    digests: ObjectUrl | None = None
    """A JSON file of image to digest (`sha256:…`), by the names in rows. Images are then pulled by
    digest, and one that is not in the file is refused."""


class Dataset(OneOf):
    """The tasks. Set exactly one of `swebench`, `releasePairs` and `source`."""

    swebench: SwebenchDataset | None = variant()
    """Rows of SWE-bench, or of a dataset made after it."""
    release_pairs: ReleasePairsDataset | None = variant()
    """Tasks made of two releases of a project."""
    source: Use | None = added_variant()
    """A source of your own: a function or class that yields instances."""
    images: Images | None = unset()
    """Where to pull the tasks' images from; none: from where the rows say."""
    include: Globs = ()
    """Instance ids or globs to take, such as `django__*`; empty: all."""
    exclude: Globs = ()
    """Instance ids or globs to leave out."""
    slice: Annotated[str, StringConstraints(max_length=64)] = ""
    """A Python slice over what is left, such as `0:40` or `::10`."""
    quarantine: ObjectUrl | None = unset()
    """A file of rows that `swe-rollout audit` has found to be bad: a path (relative to the job
    file), `file://` or `s3://`. They are left out of what is left, unless they have changed."""
    skip_bad_rows: bool = False
    """Leave out rows that can't be read, with a line for each, instead of refusing the job."""

    @field_validator("slice")
    @classmethod
    def _is_slice(cls, value: str) -> str:
        if value and not re.fullmatch(r"-?\d*:-?\d*(:-?[1-9]\d*)?", value):
            raise ValueError("a Python slice such as `0:40` or `::10`")
        return value
