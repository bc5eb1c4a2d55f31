"""What must hold of a RolloutJob on a cluster, checked by the API server before it is stored.

What holds everywhere is said by the models in `job`; here is what a schema can't say, and what only
differs on a cluster. Used by `crd`, and by the reference page, which lists the messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic.alias_generators import to_camel

from swe_rollout.spec.cluster_bounds import LABEL_VALUES, QUANTITIES, RESOURCES
from swe_rollout.spec.job import Dataset, Policy, SandboxSpec
from swe_rollout.spec.status import JOB_LABEL

MAX_NAME_CHARS: Final = 40
"""Of a job: names of its pods and of their hosts are made from it, and end at 63."""

_IMMUTABLE: Final = (
    "dataset",
    "samples",
    "policy",
    "sampling",
    "limits",
    "agent",
    "grading",
    "store",
)
_OURS: Final = JOB_LABEL.partition("/")[0] + "/"


class Reason(StrEnum):
    """How the API server names a broken rule to programs."""

    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    FORBIDDEN = "FieldValueForbidden"


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL expression that must be true of the value at `path`, and what people are told."""

    path: str
    """As in `Schema.at`; empty for the whole object."""
    expression: str
    message: str
    """What is wrong and the way out."""
    reason: Reason = Reason.INVALID
    field: str = ""
    """The field inside that is to blame, such as `.store`; empty: the value itself."""


def rules() -> tuple[Rule, ...]:
    """All of them, in the order of the fields."""
    return (*_names(), *_dataset(), *_policy(), *_sandbox(), *_workers(), *_store(), *_changes())


def _names() -> tuple[Rule, ...]:
    name = ".metadata.name"
    return (
        Rule(
            "",
            f"self.metadata.name.size() <= {MAX_NAME_CHARS}",
            f"a job's name has at most {MAX_NAME_CHARS} characters, because pods are named after "
            "it; shorten metadata.name",
            field=name,
        ),
        Rule(
            "",
            "self.metadata.name.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "a job's name is its folder in the store: write metadata.name with lower-case "
            "letters, digits and `-` only, such as `my-job-2`",
            field=name,
        ),
    )


def _one_of(path: str, model: type[Dataset | Policy | SandboxSpec], written: str) -> Rule:
    variants = tuple(map(to_camel, model.variants()))
    count = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in variants)
    *others, last = (f"`{name}`" for name in variants)
    names = f"{', '.join(others)} and {last}"
    return Rule(
        path,
        f"{count} == 1",
        f"set exactly one of {names}; one without settings of its own is written `{written}: {{}}`",
    )


def _dataset() -> tuple[Rule, ...]:
    return (
        _one_of("spec.dataset", Dataset, "releasePairs"),
        Rule(
            "spec.dataset.slice",
            r"self == '' || self.matches(r'^-?\d*:-?\d*(:-?[1-9]\d*)?$')",
            "write a Python slice in quotes, such as '0:40' or '::10'",
        ),
        Rule(
            "spec.dataset.swebench.uri",
            r"self.matches(r'^(s3|gs|az)://[^@\s]+$')",
            "workers have no files of yours: upload the rows and write their address, such as "
            "s3://bucket/rows.jsonl.zst; credentials go into a Secret of spec.workers.secrets",
        ),
    )


def _policy() -> tuple[Rule, ...]:
    sglang = "spec.policy.sglang"
    return (
        _one_of("spec.policy", Policy, "scripted"),
        Rule(
            sglang,
            "has(self.url) || (has(self.workers) && self.workers.size() > 0)",
            "where is the engine? write `url: http://sglang:30000`, or list `workers`",
            Reason.REQUIRED,
        ),
        *(rule for path in (f"{sglang}.url", f"{sglang}.workers[]") for rule in _engine(path)),
        Rule(
            "spec.policy.sglang.apiKeyEnv",
            "self.matches(r'^[A-Za-z_][A-Za-z0-9_]*$')",
            "write the name of an environment variable, never the key itself; a Secret in "
            "spec.workers.secrets gives the variable its value",
        ),
        Rule(
            "spec.policy.tokenizer",
            r"self.matches(r'^[^.~\s]\S*$')",
            "workers have no folder of yours: write a hub name such as Qwen/Qwen3-8B, or the "
            "absolute path of a folder in the image spec.workers.image",
        ),
    )


def _engine(path: str) -> tuple[Rule, ...]:
    return (
        Rule(
            path,
            r"self.matches(r'^https?://[^/\s]+')",
            "write the engine's http:// or https:// address, such as http://sglang:30000",
        ),
        Rule(
            path,
            r"!self.matches(r'^https?://[^/]*@')",
            "credentials don't belong in a spec: put the key into a Secret, name that in "
            "spec.workers.secrets and its key in spec.policy.sglang.apiKeyEnv",
            Reason.FORBIDDEN,
        ),
        Rule(
            path,
            r"!self.matches(r'^https?://(localhost|127\.|0\.0\.0\.0|\[::1\])')",
            "on a cluster this is the worker's own pod: name the engine's Service, such as "
            "http://sglang.my-namespace:30000",
        ),
    )


def _sandbox() -> tuple[Rule, ...]:
    return (
        Rule(
            "spec",
            "has(self.sandbox)",
            "spec.sandbox is missing: on a cluster episodes run in pods, write "
            "`sandbox: {pod: {}}`",
            Reason.REQUIRED,
        ),
        _one_of("spec.sandbox", SandboxSpec, "pod"),
        Rule(
            "spec.sandbox",
            "!has(self.local)",
            "local sandboxes are for `swe-rollout run` on your machine: on a cluster write "
            "`sandbox: {pod: {}}`",
            Reason.FORBIDDEN,
            ".local",
        ),
        Rule(
            "spec.sandbox",
            "!has(self.kodo)",
            "kodo is for `swe-rollout run`, the worker image has none: on a cluster write "
            "`sandbox: {pod: {}}`",
            Reason.FORBIDDEN,
            ".kodo",
        ),
        Rule(
            "spec.sandbox.pod",
            "!has(self.namespace)",
            "sandboxes run in the job's own namespace: take this field out and set "
            "metadata.namespace",
            Reason.FORBIDDEN,
            ".namespace",
        ),
        Rule(
            "spec.sandbox.pod",
            "!has(self.context)",
            "workers have no kubeconfig, they use the cluster they are in: take this field out",
            Reason.FORBIDDEN,
            ".context",
        ),
        *(rule for path in RESOURCES for rule in _resources(path)),
    )


def _resources(path: str) -> tuple[Rule, ...]:
    return (
        *(
            Rule(
                f"{path}.{name}",
                "isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",
                "write a Kubernetes quantity above 0 in quotes, such as '2', '500m' or '4Gi'",
            )
            for name in QUANTITIES
        ),
        Rule(
            path,
            "!has(self.cpuLimit) || !isQuantity(self.cpuLimit) || !isQuantity(self.cpu)"
            " || !quantity(self.cpuLimit).isLessThan(quantity(self.cpu))",
            "the limit is below what is requested: raise `cpuLimit`, or lower `cpu`",
            field=".cpuLimit",
        ),
    )


def _workers() -> tuple[Rule, ...]:
    return (
        Rule(
            "spec.parallelism",
            "self >= 1",
            "at least one episode at a time; to pause the job set spec.suspend to true",
        ),
        Rule(
            "spec.workers.image", r"self.matches(r'^\S+$')", "write an image, such as repo/name:1"
        ),
        Rule(
            "spec.workers.secrets",
            "self.all(name, name.matches(r'^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$'))",
            "write names of Secrets in the job's namespace, never their values; make one with "
            "`kubectl create secret generic my-s3 --from-env-file FILE`",
        ),
        *(
            Rule(
                path,
                r"self.matches(r'^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",
                "write the value of a label as Kubernetes has it: letters, digits, `-`, `_` and "
                "`.`, the first and the last a letter or a digit",
            )
            for path in LABEL_VALUES
        ),
        Rule(
            "spec.workers.labels",
            f"self.all(key, !key.startsWith('{_OURS}'))",
            f"labels that start with {_OURS} are the operator's own: use another prefix",
            Reason.FORBIDDEN,
        ),
    )


def _store() -> tuple[Rule, ...]:
    return (
        Rule(
            "spec",
            "has(self.store) && has(self.store.uri)",
            "spec.store.uri is missing: on a cluster trajectories go to object storage, write "
            "`store: {uri: 's3://bucket/prefix'}`",
            Reason.REQUIRED,
        ),
        Rule(
            "spec.store.uri",
            "!self.startsWith('file:')",
            "a pod's files are gone when it ends: write an address in object storage, such as "
            "s3://bucket/prefix; file:// is for `swe-rollout run` on your machine",
        ),
        Rule(
            "spec.store.uri",
            r"self.startsWith('file:') || self.matches(r'^(s3|gs|az)://[^@\s]+$')",
            "write an address in object storage, such as s3://bucket/prefix; credentials go into a "
            "Secret named in spec.workers.secrets",
        ),
    )


def _changes() -> tuple[Rule, ...]:
    return (
        *(
            Rule(
                f"spec.{name}",
                "self == oldSelf",
                f"`{name}` can't change after creation, because all trajectories of a job are "
                "comparable: create a job with another metadata.name, or delete this one first",
            )
            for name in _IMMUTABLE
        ),
        Rule(
            "spec.workers.count",
            "self == oldSelf",
            "tasks are split among this many workers for good: change spec.parallelism to run "
            "more or fewer episodes at a time (`kubectl scale rj NAME --replicas 16`), or create "
            "another job",
        ),
    )
