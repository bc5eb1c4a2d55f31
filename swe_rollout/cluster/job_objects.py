"""What we read of RolloutJobs on a cluster, and of the events about them.

Only the spec's fields that a reader needs are taken: a cluster may hold jobs that another version
wrote, and jobs that are not valid; those must be shown too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import msgspec
from pydantic import ValidationError

from swe_rollout.errors import ClusterError
from swe_rollout.spec.job import StoreSpec
from swe_rollout.spec.status import ConditionType, RolloutJobStatus

if TYPE_CHECKING:
    from swe_rollout.spec.status import Condition


class _Seen(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The base: camelCase outside, unknown fields skipped."""


class JobMetadata(_Seen, frozen=True):
    """Who a job is."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    """Set while the job is being cancelled."""


class _Store(_Seen, frozen=True):
    uri: str = StoreSpec().uri


class _Grading(_Seen, frozen=True):
    enabled: bool = True


class JobSpecSeen(_Seen, frozen=True):
    """The part of a spec that readers need."""

    store: _Store = _Store()
    grading: _Grading = _Grading()
    suspend: bool = False
    parallelism: int = 0


class _RawJob(_Seen, frozen=True):
    metadata: JobMetadata
    spec: JobSpecSeen = JobSpecSeen()
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _RawJobList(_Seen, frozen=True):
    items: list[_RawJob] | None = None


@dataclass(frozen=True, slots=True)
class JobObject:
    """A RolloutJob as the API server has it."""

    metadata: JobMetadata
    spec: JobSpecSeen
    status: RolloutJobStatus

    @classmethod
    def decode(cls, data: bytes | msgspec.Raw) -> Self:
        """The job in an answer's JSON; raises ClusterError when it can't be understood."""
        try:
            return cls._of(msgspec.json.decode(data, type=_RawJob))
        except msgspec.DecodeError as error:
            raise _not_understood(error) from error

    @classmethod
    def decode_list(cls, data: bytes) -> tuple[Self, ...]:
        """The jobs of a list, by name."""
        try:
            found = msgspec.json.decode(data, type=_RawJobList).items or []
        except msgspec.DecodeError as error:
            raise _not_understood(error) from error
        return tuple(cls._of(each) for each in sorted(found, key=lambda each: each.metadata.name))

    @classmethod
    def _of(cls, raw: _RawJob) -> Self:
        try:
            status = RolloutJobStatus.model_validate_json(bytes(raw.status), extra="ignore")
        except ValidationError as error:
            raise _not_understood(error) from error
        return cls(raw.metadata, raw.spec, status)

    @property
    def name(self) -> str:
        """The job's name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Where it lives."""
        return self.metadata.namespace

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of that type, when the operator has said something of it."""
        return next((each for each in self.status.conditions if each.type is kind), None)


class _Reporter(_Seen, frozen=True):
    component: str = ""


class _About(_Seen, frozen=True):
    kind: str = ""
    name: str = ""


class JobEvent(_Seen, frozen=True):
    """What a component said about a job, its worker Job or one of its workers."""

    type: str = ""
    """`Normal` or `Warning`."""
    reason: str = ""
    message: str = ""
    count: int | None = None
    involved_object: _About = _About()
    source: _Reporter | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    metadata: JobMetadata = JobMetadata(name="")

    @property
    def time(self) -> str:
        """When it was last said: RFC 3339, to the second."""
        told = self.last_timestamp or self.event_time or self.metadata.creation_timestamp
        return told.partition(".")[0].removesuffix("Z")

    @property
    def about(self) -> str:
        """`rolloutjob/demo`."""
        return f"{self.involved_object.kind.lower()}/{self.involved_object.name}"


class JobEventList(_Seen, frozen=True):
    """Events of one object."""

    items: list[JobEvent] | None = None


def _not_understood(error: Exception) -> ClusterError:
    return ClusterError(
        "a RolloutJob on the cluster can't be read",
        why=" ".join(str(error).split())[:300],
        fix="use a swe-rollout of the operator's version",
        retryable=False,
    )
