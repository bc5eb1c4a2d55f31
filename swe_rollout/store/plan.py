"""The plan of a job: its tasks and samples, and the spec that all its trajectories share.

A plan only grows: after a run of fewer episodes, the others stay planned. Pure; no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from swe_rollout.errors import UsageError
from swe_rollout.store.layout import segment
from swe_rollout.types.episode import EpisodeId

if TYPE_CHECKING:  # importing it takes a tenth of a second, and readers do not need it
    from swe_rollout.spec.job import RolloutJob

_FIELDS_SHOWN = 5
_VALUE_SHOWN = 60
_OTHER_JOB = "give this job another metadata.name, or another store.uri"


@dataclass(frozen=True, slots=True)
class PlannedInstance:
    """One task of a job, and its number of planned samples."""

    id: str
    samples: int
    digest: str
    """Digest of the task's content; empty if unknown."""

    def extended(self, other: PlannedInstance) -> PlannedInstance:
        """Return the task with the larger number of samples."""
        return replace(
            self, samples=max(self.samples, other.samples), digest=self.digest or other.digest
        )

    def is_changed(self, other: PlannedInstance) -> bool:
        """Whether `other` is a different task with the same name."""
        return self.digest != other.digest and bool(self.digest and other.digest)


@dataclass(frozen=True, slots=True)
class Plan:
    """The episodes of a job, and its spec when they were planned."""

    instances: tuple[PlannedInstance, ...]
    """Tasks in the order in which workers divide them; new ones come last."""
    spec_digest: str
    """Digest of the part of the spec that makes trajectories comparable, which also have it."""
    job: dict[str, Any]
    """The resolved job, as in `job.yaml`; empty if unknown."""
    schema: int = 2
    quarantined: dict[str, str] = field(default_factory=dict)
    """Tasks that the last run left out because an audit found them bad, with the checks that they
    failed. Episodes planned before stay planned."""

    @classmethod
    def of(
        cls,
        job: RolloutJob,
        instances: Mapping[str, str],
        quarantined: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Plan a job over tasks, given as a mapping from ids to content digests.

        `quarantined` maps the ids of skipped tasks to reasons.
        """
        samples = job.spec.samples
        planned = (PlannedInstance(segment(n), samples, digest) for n, digest in instances.items())
        left_out = {segment(name): why for name, why in quarantined.items()}
        return cls(tuple(planned), job.digest, job.to_yaml_dict(), quarantined=left_out)

    @property
    def episodes(self) -> int:
        """The number of episodes."""
        return sum(instance.samples for instance in self.instances)

    @property
    def forked_from(self) -> str:
        """Where forked episodes start, as `job/instance/sample, turn n`; empty if not a fork."""
        spec = self.job.get("spec")
        fork = spec.get("fork") if isinstance(spec, dict) else None
        if not isinstance(fork, dict):
            return ""
        name = str(fork.get("uri", "")).rpartition("/")[2]
        return f"{name}/{fork.get('instance')}/{fork.get('sample')}, turn {fork.get('turn')}"

    def unplanned(self, episodes: frozenset[EpisodeId]) -> int:
        """Count the episodes that are not in the plan."""
        samples = {instance.id: instance.samples for instance in self.instances}
        return sum(each.sample >= samples.get(each.instance, 0) for each in episodes)

    def missing(self, episodes: frozenset[EpisodeId]) -> int:
        """Count the planned episodes missing from `episodes`, except those in quarantine."""
        samples = {each.id: each.samples for each in self.instances}
        for name in self.quarantined:
            samples.pop(name, None)
        there = sum(each.sample < samples.get(each.instance, 0) for each in episodes)
        return sum(samples.values()) - there

    def order(self) -> dict[str, int]:
        """Return the position of each task."""
        return {instance.id: position for position, instance in enumerate(self.instances)}

    def extended(self, wanted: Plan, *, address: str, takes_code: bool = False) -> Plan:
        """Return the plan extended by the episodes of `wanted`, or itself if it has them all.

        Raises UsageError if its trajectories would not be comparable with those at `address`. With
        `takes_code`, changed and further files of user code are taken.
        """
        is_changed = self._digest != wanted.spec_digest
        if is_changed and not (takes_code and self._differs_in_code(wanted)):
            raise self._refusal(wanted, address)
        known = {instance.id: instance for instance in self.instances}
        changed = [new.id for new in wanted.instances if known.get(new.id, new).is_changed(new)]
        if changed:
            raise _other_tasks(address, changed)
        new = {instance.id: instance for instance in wanted.instances}
        merged = (each.extended(new.pop(each.id, each)) for each in self.instances)
        instances = (*merged, *new.values())
        is_same = instances == self.instances and self.quarantined == wanted.quarantined
        is_same = is_same and bool(self.job) and not is_changed
        return self if is_same else replace(wanted, instances=instances)

    @property
    def _digest(self) -> str:
        """Recompute the digest of the spec; an earlier version may have stored a different one."""
        return _job_of(self).digest if self.job else self.spec_digest

    def _differs_in_code(self, wanted: Plan) -> bool:
        """Whether files of user code changed or were added, and nothing else."""
        if not self.job:
            return False
        there, now = _job_of(self), _job_of(wanted)
        return _files(there).keys() <= _files(now).keys() and not _changes(there, now)

    def _refusal(self, wanted: Plan, address: str) -> UsageError:
        if not self.job:
            digests = f"{self.spec_digest}, this job has {wanted.spec_digest}"
            return another_job(address, [f"its trajectories have the spec digest {digests}"])
        changes = differences(_job_of(self), _job_of(wanted))
        if not self._differs_in_code(wanted):
            return another_job(address, changes)
        return UsageError(
            f"{address} was begun with other code",
            why="; ".join(changes),
            fix="run it again with --rerun-masked: what is masked is graded or played again with "
            f"the code of now, and all else stays; or {_OTHER_JOB}",
        )


def _job_of(plan: Plan) -> RolloutJob:
    # Importing it takes a tenth of a second, and readers do not need it.
    from swe_rollout.spec.job import RolloutJob  # noqa: PLC0415

    return RolloutJob.model_validate(plan.job)


def settings(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a resolved job by path, without passwords in addresses."""
    return dict(_flat("spec", job.get("spec", {})))


def differences(there: RolloutJob, now: RolloutJob) -> list[str]:
    """Describe the first few differences, such as `spec.limits.turns: 40 there, 50 now`."""
    found = [*_code_changes(_files(there), _files(now)), *_changes(there, now)]
    more = len(found) - _FIELDS_SHOWN
    return found[:_FIELDS_SHOWN] + ([f"and {more} further differences"] if more > 0 else [])


def _files(job: RolloutJob) -> dict[str, str]:
    return {file.name: file.sha256 for file in job.spec.extensions}


def _code_changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"{name} is missing, which this job began with: name it by --with {name}"
        elif name not in old:
            yield f"{name} was added since this job began"
        elif old[name] != new[name]:
            yield f"{name} changed since this job began"


def another_job(address: str, changes: Sequence[str]) -> UsageError:
    """Return the error for a job with trajectories not comparable with those at `address`."""
    return UsageError(
        f"{address} belongs to a job with another spec",
        why="; ".join(changes),
        fix=f"{_OTHER_JOB}; a job in a store can change its tasks, samples, speed and sandboxes, "
        "and nothing that its trajectories depend on",
    )


def _other_tasks(address: str, changed: Sequence[str]) -> UsageError:
    count = f"{len(changed)} tasks have" if len(changed) > 1 else "a task has"
    return UsageError(
        f"{address} was begun with other tasks of the same names",
        why=f"{count} another content now, such as {min(changed)}",
        fix=f"{_OTHER_JOB}, or bring back the rows that it was begun with",
    )


def _changes(there: RolloutJob, now: RolloutJob) -> list[str]:
    """Describe the differing fields, but not those of user code."""
    old, new = _fields(there), _fields(now)
    return [_described(*change) for change in _compared("spec", old, new)]


def _fields(job: RolloutJob) -> dict[str, Any]:
    """Return the comparable fields without digests of files."""
    fields = job.comparable()
    fields.pop("extensions", None)
    match fields.get("agent"):
        case {"tools": list(tools)}:
            for tool in tools:
                if isinstance(tool, dict) and tool.get("use") == "bundle":
                    tool.get("with", {}).pop("sha256", None)
    return fields


def _compared(path: str, old: Any, new: Any) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield the path of each differing value, with both values in words of YAML."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from _compared(f"{path}.{name}", old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _compared(f"{path}[{at}]", before, after)
    elif old != new:
        yield path, _words(old), _words(new)


def _flat(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(f"{path}.{name}", inner)
    elif (words := _words(value)) is not None:
        yield path, words


def _words(value: object) -> str | None:
    """Write a value as on one line of a job file; None if it is unset."""
    if value is None:
        return None
    import yaml  # noqa: PLC0415 - readers do without

    text = yaml.safe_dump(value, default_flow_style=True, width=1 << 30, allow_unicode=True)
    words = text.removesuffix("\n").removesuffix("\n...")
    return re.sub(r"//[^/@\s]+@", "//", words)


def _described(path: str, old: str | None, new: str | None) -> str:
    before, after = old or "unset", new or "unset"
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after)))  # noqa: B905 - one may be longer
    start = 0 if max(len(before), len(after)) <= _VALUE_SHOWN else max(0, same - _VALUE_SHOWN // 4)
    return f"{path}: {_cut(before, start)} there, {_cut(after, start)} now"


def _cut(text: str, start: int) -> str:
    """Cut a long value to the part where two values differ."""
    shown = text[start : start + _VALUE_SHOWN]
    return f"{'…' if start else ''}{shown}{'…' if start + _VALUE_SHOWN < len(text) else ''}"
