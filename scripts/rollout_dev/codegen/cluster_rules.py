"""CEL rules for a RolloutJob on a cluster; the API server checks them before it stores the job.

The models in `job` hold the rules that apply everywhere. These are the ones that a schema can't
express, or that apply on a cluster only. Used by `crd`, and by the reference page, which lists the
messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic.alias_generators import to_camel

from rollout_dev.codegen.cluster_bounds import (
    AMOUNTS,
    LABEL_VALUES,
    LABELS,
    QUANTITIES,
    RESOURCES,
    TEMPLATE,
    TOLERATIONS,
)
from swe_rollout.spec.addresses import CONTROL_PORTS, METADATA_HOSTS, METADATA_IPS
from swe_rollout.spec.dataset import Dataset
from swe_rollout.spec.pod_template import ANNOTATIONS, KUEUE
from swe_rollout.spec.policy import Policy
from swe_rollout.spec.quantity import MAX_AMOUNTS
from swe_rollout.spec.sandbox import SandboxSpec

MAX_NAME_CHARS: Final = 40
"""Longest name of a job: names of its pods and hosts derive from it and may have 63."""

_GROWING: Final = ("dataset", "samples")
_IMMUTABLE: Final = (
    "policy",
    "sampling",
    "limits",
    "agent",
    "grading",
    "store",
)
_METADATA: Final = "|".join(
    (
        r"169\.254\.",
        r"\[fe[89ab]",
        r"(0x[0-9a-f]*|[0-9]+)(:|/|$)",  # 2852039166 is 169.254.169.254
        *(rf"\[?{re.escape(host)}\]?\.?(:|/|$)" for host in (*METADATA_HOSTS, *METADATA_IPS)),
    )
)
_CONTROL_PORTS: Final = "|".join(map(str, CONTROL_PORTS))
_API_ADDRESSES: Final = ("openai.url", "openai.urls[]", "anthropic.url")
_OWN_KEY: Final = f"!(key.contains('/') || key.contains('.')) || key.startsWith('{KUEUE}')"


class RuleReason(StrEnum):
    """The API server's machine-readable reason for a violated rule."""

    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    FORBIDDEN = "FieldValueForbidden"


@dataclass(frozen=True, slots=True)
class ClusterRule:
    """A CEL expression that must hold for the value at `path`, and its error message."""

    path: str
    """As in `Schema.at`; empty for the whole object."""
    expression: str
    message: str
    """The problem and how to fix it."""
    reason: RuleReason = RuleReason.INVALID
    field: str = ""
    """The offending field inside the value, such as `.store`; empty: the value itself."""


def rules() -> tuple[ClusterRule, ...]:
    """All rules, in the order of the fields."""
    return (
        *_names(),
        *_dataset(),
        *_policy(),
        *_sandbox(),
        *_template(),
        *_workers(),
        *_store(),
        *_changes(),
    )


def _names() -> tuple[ClusterRule, ...]:
    name = ".metadata.name"
    return (
        ClusterRule(
            "",
            f"self.metadata.name.size() <= {MAX_NAME_CHARS}",
            f"a job's name has at most {MAX_NAME_CHARS} characters, because pods are named after "
            "it; shorten metadata.name",
            field=name,
        ),
        ClusterRule(
            "",
            "self.metadata.name.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "a job's name is its folder in the store: write metadata.name with lower-case "
            "letters, digits and `-` only, such as `my-job-2`",
            field=name,
        ),
    )


def _one_of(path: str, model: type[Dataset | Policy | SandboxSpec], written: str) -> ClusterRule:
    variants = tuple(map(to_camel, model.variants()))
    count = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in variants)
    *others, last = (f"`{name}`" for name in variants)
    names = f"{', '.join(others)} and {last}"
    return ClusterRule(
        path,
        f"{count} == 1",
        f"set exactly one of {names}; one without settings of its own is written `{written}: {{}}`",
    )


def _dataset() -> tuple[ClusterRule, ...]:
    return (
        _one_of("spec.dataset", Dataset, "releasePairs"),
        ClusterRule(
            "spec.dataset.slice",
            r"self == '' || self.matches(r'^-?\d*:-?\d*(:-?[1-9]\d*)?$')",
            "write a Python slice in quotes, such as '0:40' or '::10'",
        ),
        ClusterRule(
            "spec.dataset.swebench.uri",
            r"self.matches(r'^(s3|gs|az)://[^@?#\s]+$')",
            "workers can't read files on your machine: upload the rows and write their address, "
            "such as s3://bucket/rows.jsonl.zst; credentials go into a Secret in "
            "spec.workers.secrets",
        ),
    )


def _policy() -> tuple[ClusterRule, ...]:
    sglang = "spec.policy.sglang"
    return (
        _one_of("spec.policy", Policy, "scripted"),
        ClusterRule(
            sglang,
            "has(self.url) || (has(self.workers) && self.workers.size() > 0)",
            "the engine's address is missing: write `url: http://sglang:30000`, or list `workers`",
            RuleReason.REQUIRED,
        ),
        *(rule for path in (f"{sglang}.url", f"{sglang}.workers[]") for rule in _engine(path)),
        *(rule for field in _API_ADDRESSES for rule in _engine(f"spec.policy.{field}")),
        *(
            ClusterRule(
                f"spec.policy.{served}.apiKeyEnv",
                "self.matches(r'^[A-Za-z_][A-Za-z0-9_]*$')",
                "write the name of an environment variable, never the key itself; a Secret in "
                "spec.workers.secrets provides its value",
            )
            for served in ("sglang", "openai", "anthropic")
        ),
        ClusterRule(
            "spec.policy.transformers.model",
            r"self.matches(r'^[^.~\s]\S*$')",
            "workers can't read folders on your machine: write a hub name such as Qwen/Qwen3-0.6B, "
            "or the absolute path of a folder in the image spec.workers.image",
        ),
        ClusterRule(
            "spec.policy.tokenizer",
            r"self.matches(r'^[^.~\s]\S*$')",
            "workers can't read folders on your machine: write a hub name such as Qwen/Qwen3-8B, "
            "or the absolute path of a folder in the image spec.workers.image",
        ),
    )


def _engine(path: str) -> tuple[ClusterRule, ...]:
    return (
        ClusterRule(
            path,
            r"self.matches(r'^https?://[^/\s]+')",
            "write the engine's http:// or https:// address, such as http://sglang:30000",
        ),
        ClusterRule(
            path,
            "!self.contains('@')",
            "credentials don't belong in a spec: put the key into a Secret, name the Secret in "
            "spec.workers.secrets and its key in apiKeyEnv beside the address",
            RuleReason.FORBIDDEN,
        ),
        ClusterRule(
            path,
            r"!self.matches(r'^https?://(localhost|127\.|0\.0\.0\.0|\[::1\])')",
            "on a cluster this address is the worker's own pod: name the engine's Service, such as "
            "http://sglang.my-namespace:30000",
        ),
        ClusterRule(
            path,
            f"!self.matches(r'(?i)^https?://({_METADATA})')",
            "this is not an engine: clouds have their metadata service there; name the engine's "
            "Service, such as http://sglang.my-namespace:30000",
            RuleReason.FORBIDDEN,
        ),
        ClusterRule(
            path,
            r"!self.matches(r'(?i)^https?://kubernetes(\.default(\.svc(\.[^/:]*)?)?)?\.?(:|/|$)')"
            rf" && !self.matches(r'^https?://[^/]*:({_CONTROL_PORTS})(/|$)')",
            "the cluster's own components are no engines: name the engine's Service, such as "
            "http://sglang.my-namespace:30000",
            RuleReason.FORBIDDEN,
        ),
        ClusterRule(
            path,
            r"!self.matches(r'[?#\\]')",
            "write the root of the server alone, such as http://sglang:30000",
        ),
    )


def _sandbox() -> tuple[ClusterRule, ...]:
    return (
        ClusterRule(
            "spec",
            "has(self.sandbox)",
            "spec.sandbox is missing: on a cluster, episodes run in pods: write "
            "`sandbox: {pod: {}}`",
            RuleReason.REQUIRED,
        ),
        _one_of("spec.sandbox", SandboxSpec, "pod"),
        ClusterRule(
            "spec.sandbox",
            "!has(self.local)",
            "local sandboxes are for `swe-rollout run` on your machine: on a cluster, write "
            "`sandbox: {pod: {}}`",
            RuleReason.FORBIDDEN,
            ".local",
        ),
        ClusterRule(
            "spec.sandbox",
            "!has(self.kodo)",
            "kodo is for `swe-rollout run`, and the worker image does not have it: on a cluster, "
            "write `sandbox: {pod: {}}`",
            RuleReason.FORBIDDEN,
            ".kodo",
        ),
        ClusterRule(
            "spec.sandbox.pod",
            "!has(self.namespace)",
            "sandboxes run in the job's own namespace: remove this field and set "
            "metadata.namespace",
            RuleReason.FORBIDDEN,
            ".namespace",
        ),
        ClusterRule(
            "spec.sandbox.pod",
            "!has(self.context)",
            "workers have no kubeconfig and use the cluster they run in: remove this field",
            RuleReason.FORBIDDEN,
            ".context",
        ),
        *(rule for path in RESOURCES for rule in _resources(path)),
    )


def _resources(path: str) -> tuple[ClusterRule, ...]:
    return (
        *(
            ClusterRule(
                f"{path}.{name}",
                _in_bounds("self", most),
                f"write a Kubernetes quantity in quotes, above 0 and at most {most}",
            )
            for name, most in QUANTITIES.items()
        ),
        ClusterRule(
            path,
            "!has(self.cpuLimit) || !isQuantity(self.cpuLimit) || !isQuantity(self.cpu)"
            " || !quantity(self.cpuLimit).isLessThan(quantity(self.cpu))",
            "the limit is below the request: raise `cpuLimit`, or lower `cpu`",
            field=".cpuLimit",
        ),
    )


def _in_bounds(value: str, most: str) -> str:
    quantity = f"quantity({value})"
    return (
        f"isQuantity({value}) && {quantity}.isGreaterThan(quantity('0'))"
        f" && !{quantity}.isGreaterThan(quantity('{most}'))"
    )


def _template() -> tuple[ClusterRule, ...]:
    names = ", ".join(MAX_AMOUNTS)
    return (
        ClusterRule(
            f"{TEMPLATE}.metadata.annotations",
            f"self.all(key, {_OWN_KEY} || key in {list(ANNOTATIONS)})",
            "annotations of other programs change a pod's isolation: write a name without dots and "
            f"`/`, one of {KUEUE}, or {' or '.join(ANNOTATIONS)}",
            RuleReason.FORBIDDEN,
        ),
        *(
            ClusterRule(
                f"{path}[].key",
                r"!self.matches(r'^([^/]*\.)?(kubernetes|k8s)\.io/')",
                "Kubernetes' own taints keep pods off control planes and bad nodes: write a taint "
                "of your own",
                RuleReason.FORBIDDEN,
            )
            for path in TOLERATIONS
        ),
        *(
            ClusterRule(
                path,
                f"self.all(key, key in {list(MAX_AMOUNTS)})",
                f"a sandbox has amounts of {names}: remove the others",
                RuleReason.FORBIDDEN,
            )
            for path in AMOUNTS
        ),
        *(
            ClusterRule(
                path,
                f"!('{name}' in self) || " + _in_bounds(f"self['{name}']", most),
                f"write {name} as a Kubernetes quantity in quotes, above 0 and at most {most}",
            )
            for path in AMOUNTS
            for name, most in MAX_AMOUNTS.items()
        ),
    )


def _workers() -> tuple[ClusterRule, ...]:
    return (
        ClusterRule(
            "spec.parallelism",
            "self >= 1",
            "must be at least 1; to pause the job, set spec.suspend to true",
        ),
        ClusterRule(
            "spec.workers.image",
            r"self.matches(r'^\S+$')",
            "write an image reference, such as repo/name:1",
        ),
        ClusterRule(
            "spec.workers.secrets",
            "self.all(name, name.matches(r'^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$'))",
            "write names of Secrets in the job's namespace, never their values; create one with "
            "`kubectl create secret generic my-s3 --from-env-file FILE`, and label it "
            "swe-rollout.dev/allow-workers=true",
        ),
        *(
            ClusterRule(
                path,
                r"self.matches(r'^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",
                "write a Kubernetes label value: letters, digits, `-`, `_` and `.`, starting and "
                "ending with a letter or a digit",
            )
            for path in LABEL_VALUES
        ),
        *(
            ClusterRule(
                path,
                f"self.all(key, {_OWN_KEY})",
                "labels of other programs change a pod's rights and network: write a name without "
                f"dots and `/`, such as team, or one of {KUEUE}",
                RuleReason.FORBIDDEN,
            )
            for path in LABELS
        ),
    )


def _store() -> tuple[ClusterRule, ...]:
    return (
        ClusterRule(
            "spec",
            "has(self.store) && has(self.store.uri)",
            "spec.store.uri is missing: on a cluster, trajectories go to object storage: write "
            "`store: {uri: 's3://bucket/prefix'}`",
            RuleReason.REQUIRED,
        ),
        ClusterRule(
            "spec.store.uri",
            "!self.startsWith('file:')",
            "a pod's files are lost when it ends: write an address in object storage, such as "
            "s3://bucket/prefix; file:// is for `swe-rollout run` on your machine",
        ),
        ClusterRule(
            "spec.store.uri",
            r"self.startsWith('file:') || self.matches(r'^(s3|gs|az)://[^@?#\s]+$')",
            "write an address in object storage, such as s3://bucket/prefix; credentials go into a "
            "Secret in spec.workers.secrets",
        ),
        ClusterRule(
            "spec.fork.uri",
            r"self.matches(r'^(s3|gs|az)://[^@?#\s]*[^@?#\s/]/[a-z0-9]([-a-z0-9]*[a-z0-9])?/?$')",
            "workers read the job that is forked from object storage: write its address there, "
            "its store, a slash and its name, such as s3://bucket/prefix/demo",
        ),
    )


def _changes() -> tuple[ClusterRule, ...]:
    return (
        *(
            ClusterRule(
                f"spec.{name}",
                "self == oldSelf",
                f"`{name}` can't change after creation, because all trajectories of a job must be "
                "comparable: create a job with another metadata.name, or delete this one first",
            )
            for name in _IMMUTABLE
        ),
        *(
            ClusterRule(
                f"spec.{name}",
                "self == oldSelf",
                f"`{name}` can't change while the job runs: to let it grow, delete it and create "
                "it again with the same name and store; committed episodes stay",
            )
            for name in _GROWING
        ),
        ClusterRule(
            "spec",
            "has(self.extensions) == has(oldSelf.extensions) && "
            "(!has(self.extensions) || self.extensions == oldSelf.extensions)",
            "`extensions` can't change after creation, because all trajectories of a job must be "
            "comparable: create a job with another metadata.name, or delete this one first",
            field=".extensions",
        ),
        ClusterRule(
            "spec",
            "has(self.fork) == has(oldSelf.fork) && (!has(self.fork) || self.fork == oldSelf.fork)",
            "`fork` can't change after creation, because all episodes of a job begin from the same "
            "turn: create a job with another metadata.name",
            field=".fork",
        ),
        ClusterRule(
            "spec.workers.count",
            "self == oldSelf",
            "tasks are divided among this many workers at the start: change spec.parallelism to "
            "run more or fewer episodes at a time (`kubectl scale rj NAME --replicas 16`), or "
            "create another job",
        ),
    )
