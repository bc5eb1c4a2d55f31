"""The models of a RolloutJob. The string under a field is its documentation everywhere."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from swe_rollout.spec.addresses import ObjectUrl, store_address
from swe_rollout.spec.agent import AgentSpec
from swe_rollout.spec.bounds import MAX_JOB_SECONDS, MAX_SAMPLES, ShortText
from swe_rollout.spec.dataset import Dataset
from swe_rollout.spec.grading import GradingSpec
from swe_rollout.spec.limits import FailureBudget, Limits, Resume, RetrySpec
from swe_rollout.spec.model import Model, Name, unset
from swe_rollout.spec.pod_template import (
    IdentityAnnotations,
    Labels,
    NodeLabels,
    PullSecret,
    Toleration,
)
from swe_rollout.spec.policy import LARGEST_MASK, Policy, Sampling
from swe_rollout.spec.sandbox import LocalSandbox, Resources, SandboxSpec
from swe_rollout.spec.tool_format import ToolFormat

API_VERSION: Final = "swe-rollout.dev/v1alpha1"
KIND: Final = "RolloutJob"
CRD_NAME: Final = "rolloutjobs.swe-rollout.dev"
"""The name of the custom resource definition."""
EPISODES_OF_A_WORKER: Final = 250
"""The concurrent episodes for each worker (docs/how-to/size-a-cluster.md)."""
_COMPARABLE: Final = frozenset({"policy", "sampling", "limits", "agent", "grading", "extensions"})
"""The fields of a spec that trajectories depend on, wherever they start."""
_SERVED: Final = {"url", "api_key_env", "timeout_seconds", "concurrency", "retries"}
_CONNECTION: Final = {
    "sglang": _SERVED | {"workers", "outage_seconds"},
    "openai": _SERVED | {"urls"},
    "anthropic": _SERVED | {"prompt_cache"},
    "transformers": {"cache_tokens"},
}
"""The fields of a policy that affect how its engine is called, not what it samples."""


class StoreSpec(Model):
    """The store of trajectories."""

    # The default is also relative to the job file.
    model_config = ConfigDict(validate_default=True)

    uri: Annotated[ObjectUrl, AfterValidator(store_address)] = "file://runs"
    """A folder, as `file://` or a path (relative to the job file); `s3://bucket/prefix`,
    `gs://bucket/prefix` or `az://container/prefix`. Each job has its own folder there. Credentials
    come from the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`); on a cluster, from
    `spec.workers.secrets`."""
    keep_journals: Annotated[bool, Field(exclude_if=lambda keep: not keep)] = False
    """If true, the journal of an episode (the responses of engine and sandbox, and the files that
    each turn changed) is kept beside its record as one object, so that `swe-rollout fork` can start
    new episodes from its turns. If false, it is deleted when the episode is committed."""


class ForkSpec(Model):
    """The turn to start from, in a committed episode of a job with `store.keepJournals`."""

    uri: ObjectUrl
    """The job of that episode, as its store, a slash and its name: `s3://bucket/prefix/demo`."""
    instance: Annotated[str, Field(pattern=r"^[A-Za-z0-9._+-]+$", max_length=256)]
    """The task of that episode, which is the only task of this job."""
    sample: Annotated[int, Field(ge=0, le=999_999_999)]
    """The sample number of that episode."""
    turn: Annotated[int, Field(ge=1, le=100_000)]
    """The turn to sample again, counted from 0 as in the record; earlier turns are inherited, along
    with the files that they left."""
    train_inherited: Annotated[bool, Field(exclude_if=lambda trained: not trained)] = False
    """If false, trainers get a loss mask of 0 on the inherited tokens, which all episodes of the
    job share. If true, each episode trains on them too."""

    @field_validator("uri")
    @classmethod
    def _names_a_job(cls, value: str, info: ValidationInfo) -> str:
        value = store_address(value, info)
        if not re.match(r"^\w+://.*[^/]/[a-z0-9]([-a-z0-9]*[a-z0-9])?$", value):
            raise ValueError("the address of a job, such as s3://bucket/prefix/demo")
        return value


class WorkersSpec(Model):
    """The pods that run episodes, on a cluster. `run` has none: it is the worker."""

    count: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Number of worker pods; by default one for every 250 of `parallelism` as the job starts. Tasks
    are split among them; the samples of a task stay together."""
    image: Annotated[str, StringConstraints(max_length=512)] | None = None
    """The workers' image; by default the operator's own."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the image is pulled."""
    secrets: Annotated[tuple[ShortText, ...], Field(max_length=16)] = ()
    """Secrets in the job's namespace whose keys become environment variables: credentials for the
    store, API keys. They need the label `swe-rollout.dev/allow-workers: "true"`."""
    service_account_annotations: IdentityAnnotations = Field(default_factory=dict)
    """Annotations that give workers an identity in a cloud, such as
    `eks.amazonaws.com/role-arn: arn:aws:iam::123456789012:role/rollouts`. The namespace's
    annotation `swe-rollout.dev/worker-identities` lists those allowed, one `NAME=VALUE` a line."""
    resources: Resources = Resources(cpu="250m", memory="1Gi", ephemeral_storage="1Gi")
    node_selector: NodeLabels = Field(default_factory=dict)
    """Labels of the nodes that may run workers."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()
    """Taints of your own nodes that workers tolerate."""
    image_pull_secrets: Annotated[tuple[PullSecret, ...], Field(max_length=8)] = ()
    """Secrets in the job's namespace with credentials for the registry of the workers' image, with
    the same label as `secrets`. Programs in the worker can't read them."""
    labels: Labels = Field(default_factory=dict)
    """Labels of the worker Job and its pods: names without dots and `/`, such as `team`, and
    Kueue's, such as `kueue.x-k8s.io/queue-name`."""


class ExtensionFile(Model):
    """A file that travels with the job: a Python file, which is imported before extensions are
    named, or a bundle of tools, which only sandboxes run.
    """

    name: Annotated[
        str,
        Field(
            pattern=r"^([A-Za-z_][A-Za-z0-9_]*\.py|[A-Za-z0-9_][A-Za-z0-9_.-]*\.bundle)$",
            max_length=128,
        ),
    ]
    """The file's name; a Python file's stem is the name of its module."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the file's content, under which the store holds it."""


class RolloutJobSpec(Model):
    """The job's specification."""

    dataset: Dataset
    """The tasks."""
    samples: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] = 1
    """Episodes per task (the group size)."""
    parallelism: Annotated[int, Field(ge=1, le=10_000)] = 4
    """The most concurrent episodes."""
    policy: Policy
    """The policy."""
    sampling: Sampling = Sampling()
    """How the policy samples."""
    limits: Limits = Limits()
    """Limits of one episode."""
    # Its own defaults depend on each other; those of a schema can't.
    agent: Annotated[AgentSpec, Field(json_schema_extra={"default": {}})] = AgentSpec()
    """The agent."""
    sandbox: SandboxSpec = SandboxSpec(local=LocalSandbox())
    """Where the agent works and its patch is graded."""
    grading: GradingSpec = GradingSpec()
    """How patches are graded."""
    store: StoreSpec = StoreSpec()
    """The store of trajectories."""
    retry: RetrySpec = RetrySpec()
    """Retries after failures that the policy did not cause."""
    failure_budget: FailureBudget = FailureBudget()
    """When to stop a job whose infrastructure fails."""
    workers: WorkersSpec = WorkersSpec()
    """The pods that run episodes, on a cluster."""
    fork: ForkSpec | None = unset()
    """Start all episodes from a turn of another job's episode; by default from the task. Policy,
    agent, limits, extensions and sampling (except the seed) must match the other job's."""
    extensions: Annotated[
        tuple[ExtensionFile, ...], Field(max_length=8, exclude_if=lambda files: not files)
    ] = ()
    """Files of your own code, added by `--with FILE.py`, and bundles of tools, added where a tool
    names its folder. A cluster may forbid them."""
    suspend: bool = False
    """If true, start no episodes; committed ones stay."""
    active_deadline_seconds: Annotated[float, Field(gt=0, le=MAX_JOB_SECONDS)] | None = None
    """Time limit for the whole job; unlimited by default."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=MAX_JOB_SECONDS)] | None = None
    """How long a finished job's objects stay on the cluster; by default until they are deleted.
    Trajectories always stay."""

    @property
    def worker_count(self) -> int:
        """Return the number of worker pods of a job that begins."""
        return self.workers.count or -(-self.parallelism // EPISODES_OF_A_WORKER)

    def extension_names(self) -> Iterator[tuple[str, str]]:
        """Yield each field that names an extension, with that name."""
        yield "agent.use", self.agent.use
        yield "agent.toolFormat", self.agent.tool_format
        for index, tool in enumerate(self.agent.tools):
            yield f"agent.tools[{index}]", tool.use
        for index, term in enumerate(self.grading.reward):
            yield f"grading.reward[{index}]", term.use
            if (chat := term.chat) is not None:
                yield f"grading.reward[{index}].with.chat", chat.use
        single = {
            "grading.logParser": self.grading.log_parser,
            "dataset.source": self.dataset.source,
            "policy.engine": self.policy.engine,
            "policy.chat": self.policy.chat,
            "sandbox.backend": self.sandbox.backend,
        }
        yield from ((field, each.use) for field, each in single.items() if each is not None)

    @property
    def tasks(self) -> Dataset:
        """Return the dataset, limited to the single task if the job is a fork."""
        if self.fork is None:
            return self.dataset
        only = {"include": (self.fork.instance,), "exclude": (), "slice": ""}
        return self.dataset.model_copy(update=only)

    @model_validator(mode="after")
    def _has_journals_to_keep(self) -> Self:
        if self.store.keep_journals and self.retry.resume is Resume.NEVER:
            raise ValueError("store.keepJournals needs journals: set retry.resume to exact or best")
        return self

    @model_validator(mode="after")
    def _mask_has_a_bound(self) -> Self:
        sglang, top_k = self.policy.sglang, self.sampling.top_k
        if sglang and sglang.record.sampling_mask and not 1 <= top_k <= LARGEST_MASK:
            raise ValueError(
                f"record.samplingMask needs sampling.topK from 1 to {LARGEST_MASK}, which bounds "
                "what the engine tells of each token"
            )
        return self

    @model_validator(mode="after")
    def _fits_a_chat_api(self) -> Self:
        """Refuse what a chat API could only ignore."""
        if self.policy.has_tokens:
            return self
        ignored = {
            "policy.tokenizer": self.policy.tokenizer is not None,
            "policy.chatTemplateKwargs": bool(self.policy.chat_template_kwargs),
            # Formats written in message text need no support from the API.
            "agent.toolFormat": self.agent.tool_format in frozenset[str](ToolFormat),
        }
        if names := [name for name, is_set in ignored.items() if is_set]:
            raise ValueError(
                f"{', '.join(names)} can't be set for a policy without tokens: the API itself "
                "turns messages into tokens and calls"
            )
        if self.policy.anthropic is not None:
            self.policy.anthropic.check(self.sampling)
        return self


class Metadata(Model):
    """The job's name, and labels for your own use."""

    name: Name
    """Lower-case letters, digits and `-`: the job's folder in the store."""
    namespace: ShortText | None = None
    """The namespace of the job's object on a cluster; local runs ignore it."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Your own labels, such as `team: rl`; swe-rollout does not read them."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Your own annotations, of any length; swe-rollout does not read them."""


class RolloutJob(Model):
    """A job: tasks × samples, rolled out by a policy, graded, stored."""

    api_version: Literal["swe-rollout.dev/v1alpha1"] = API_VERSION
    """The version of this schema."""
    kind: Literal["RolloutJob"] = KIND
    """The kind of object."""
    metadata: Metadata
    spec: RolloutJobSpec

    def with_spec(self, **fields: object) -> Self:
        """Return the job with these fields of its spec replaced, without validation."""
        return self.model_copy(update={"spec": self.spec.model_copy(update=fields)})

    def to_yaml_dict(self) -> dict[str, object]:
        """Return the resolved job in camelCase with defaults filled in, as a job file has it."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def comparable(self) -> dict[str, object]:
        """Return the fields that make trajectories comparable: not which tasks, where or how fast.

        They are fixed for a job in a store.
        """
        return self.spec.model_dump(
            mode="json",
            by_alias=True,
            include={*_COMPARABLE, "fork"},
            exclude={"policy": _CONNECTION},
        )

    @property
    def digest(self) -> str:
        """Return a digest of `comparable`, 12 hexadecimal characters long."""
        spec = json.dumps(self.comparable(), sort_keys=True)
        return hashlib.sha256(spec.encode()).hexdigest()[:12]
