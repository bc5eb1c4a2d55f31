"""The CRD on a real API server: what is refused and in which words, what is filled in, what
`kubectl` shows; and what `swe-rollout install` prints.

The definition is tried under a group of its own, so that neither an operator nor the jobs of others
on the same cluster have a part in it.
"""

from __future__ import annotations

import copy
import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cluster.site import until_served
from rollout_dev.codegen.crd import GROUP, custom_resource_definition
from swe_rollout.cli.install import manifests
from swe_rollout.spec.job import API_VERSION, CRD_NAME
from swe_rollout.spec.load import parse_job

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        "KUBECONFIG" not in os.environ or shutil.which("kubectl") is None,
        reason='needs a cluster and kubectl: `eval "$(scripts/dev-cluster up)"`',
    ),
]

ROOT: Final = Path(__file__).resolve().parents[2]
GOOD: Final[dict[str, Any]] = {
    "dataset": {"releasePairs": {}},
    "policy": {"scripted": {}},
    "sandbox": {"pod": {}},
    "store": {"uri": "s3://rollouts"},
}


def kubectl(*arguments: str, text: object = None) -> subprocess.CompletedProcess[str]:
    """Run `kubectl` with a document on its stdin."""
    return subprocess.run(
        ["kubectl", *arguments],
        input=None if text is None else json.dumps(text),
        capture_output=True,
        text=True,
        check=False,
    )


def must(*arguments: str, text: object = None) -> str:
    done = kubectl(*arguments, text=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Place:
    """A CRD under its own name, and a namespace for its objects."""

    group: str
    namespace: str
    used: list[str] = field(default_factory=list)

    @property
    def resource(self) -> str:
        return f"rolloutjobs.{self.group}"

    def job(self, spec: dict[str, Any], *, name: str = "") -> dict[str, Any]:
        if not name:
            name = f"job-{len(self.used)}"
            self.used.append(name)
        return {
            "apiVersion": f"{self.group}/v1alpha1",
            "kind": "RolloutJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }

    def refusal(self, job: dict[str, Any]) -> str:
        """Return the message that a person gets who creates the job."""
        done = kubectl("create", "--dry-run=server", "-f", "-", text=job)
        assert done.returncode != 0, f"taken: {job}"
        return done.stderr

    def created(self, spec: dict[str, Any]) -> Job:
        job = self.job(spec)
        must("create", "-f", "-", text=job)
        return Job(self, job["metadata"]["name"])


@dataclass(frozen=True)
class Job:
    """A stored job."""

    place: Place
    name: str

    def get(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("get", "-o", "json"))
        return found

    def __call__(self, verb: str, *arguments: str) -> str:
        return must(verb, self.place.resource, self.name, "-n", self.place.namespace, *arguments)

    def patched(self, change: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
        return kubectl(
            "patch", self.place.resource, self.name, "-n", self.place.namespace, "--type=merge",
            "-p", json.dumps(change), *arguments,
        )  # fmt: skip


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    mark = secrets.token_hex(3)
    here = Place(group=f"crd-test-{mark}.dev", namespace=f"crd-test-{mark}")
    definition: Any = custom_resource_definition()
    definition["metadata"]["name"] = here.resource
    definition["spec"]["group"] = here.group
    for word in ("shortNames", "categories"):  # they stay with the real one
        del definition["spec"]["names"][word]
    versions = definition["spec"]["versions"]
    text = json.dumps(versions).replace(API_VERSION, f"{here.group}/v1alpha1")
    definition["spec"]["versions"] = json.loads(text)
    must("create", "namespace", here.namespace)
    must("apply", "--server-side", "-f", "-", text=definition)
    until_served(here.resource)
    yield here
    must("delete", "crd", here.resource, "--timeout=60s")
    must("delete", "namespace", here.namespace, "--wait=false")


def with_spec(**changes: object) -> dict[str, Any]:
    """Change the valid spec at dotted paths written with `__`; None removes a field."""
    return with_paths({path.replace("__", "."): value for path, value in changes.items()})


def with_paths(changes: dict[str, Any]) -> dict[str, Any]:
    spec = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *parents, last = path.split(".")
        inner = spec
        for parent in parents:
            inner = inner.setdefault(parent, {})
        if value is None:
            inner.pop(last, None)
        else:
            inner[last] = value
    return spec


SGLANG: Final = {"scripted": None, "sglang": {"url": "http://sglang.team:30000"}}

FORK: Final = {"uri": "s3://rollouts/demo", "instance": "a__b-1", "sample": 0, "turn": 3}

READ: Final = yaml.safe_load(Path(__file__).with_name("refused_specs.yaml").read_text("utf-8"))
NO_ENGINES: Final = {url: says for says, urls in READ["no_engines"].items() for url in urls}


def rows(name: str) -> list[Any]:
    """Return specs of the file with what the refusal of each says."""
    found = READ[name]
    return [pytest.param(with_paths(each["spec"]), each["says"], id=each["says"]) for each in found]


TOO_LARGE: Final = (
    (with_spec(agent__tools=["bash"] * 33), r"spec.agent.tools: Too many"),
    (with_spec(dataset__include=["a" * 257]), r"include\[0\]: Too long"),
    (with_spec(agent__systemPrompt="a" * 65537), r"systemPrompt: Too long"),
)


@pytest.mark.threat(point=7)
@pytest.mark.parametrize(("spec", "words"), [*rows("refused"), *rows("too_much"), *TOO_LARGE])
def test_a_wrong_spec_is_rejected_with_a_fix(
    place: Place, spec: dict[str, Any], words: str
) -> None:
    assert re.search(words, place.refusal(place.job(spec)))


@pytest.mark.threat(point=26)
@pytest.mark.parametrize("url", NO_ENGINES)
def test_an_address_that_is_no_engines_is_rejected(place: Place, url: str) -> None:
    for policy in ({"url": url}, {"workers": ["http://sglang:30000", url]}):
        job = place.job(with_spec(policy={"scripted": None, "sglang": policy}))
        assert NO_ENGINES[url] in place.refusal(job)


@pytest.mark.parametrize(
    "url",
    [
        *("http://kubernetes-engine:30000", "http://metadata-server.team:30000", "http://10.2.3.4"),
        *("http://[fd12::7]:30000", "https://localhost-engine.2024-team", "http://a_b.svc./v2"),
    ],
)
def test_an_address_that_only_looks_so_is_accepted(place: Place, url: str) -> None:
    spec = with_spec(policy={"scripted": None, "sglang": {"url": url}})
    must("create", "--dry-run=server", "-f", "-", text=place.job(spec))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a" * 41, "at most 40 characters.*shorten metadata.name"),
        ("my.job", "write metadata.name with lower-case letters"),
    ],
)
def test_a_name_that_pods_can_not_have_is_rejected(place: Place, name: str, words: str) -> None:
    assert re.search(words, place.refusal(place.job(GOOD, name=name)))


def test_several_mistakes_are_reported_at_once(place: Place) -> None:
    message = place.refusal(place.job(with_spec(sandbox={"local": {}}, store__uri="file:///data")))

    assert "sandbox: {pod: {}}" in message
    assert "s3://bucket/prefix" in message


def test_a_variant_without_a_value_is_explained(place: Place) -> None:
    """YAML's `scripted:` alone is null, which the API server drops."""
    assert "is written `scripted: {}`" in place.refusal(
        place.job(GOOD | {"policy": {"scripted": None}})
    )


def sample_jobs() -> list[dict[str, Any]]:
    return [
        document
        for path in sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document["kind"] == "RolloutJob"
    ]


@pytest.mark.parametrize("sample", sample_jobs(), ids=lambda job: job["metadata"]["name"])
def test_samples_are_accepted(place: Place, sample: dict[str, Any]) -> None:
    must("create", "--dry-run=server", "-f", "-", text=place.job(sample["spec"]))


@pytest.mark.parametrize(
    "spec",
    [
        with_spec(dataset={"swebench": {"uri": "s3://data/v.parquet"}, "slice": "-10::2"}),
        with_spec(policy=SGLANG | {"tokenizer": "Qwen/Qwen3-8B"}),
        with_spec(policy={**SGLANG, "tokenizer": "/models/qwen"}),
        with_spec(
            sandbox__pod__template={
                "metadata": {"labels": {"team": "rl"}},
                "spec": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "rl"}]},
            }
        ),
        with_spec(workers={"secrets": ["my-s3"], "nodeSelector": {"disk": "ssd"}}),
        with_spec(
            workers={
                "tolerations": [{"key": "pool", "value": "cpu", "effect": "NoSchedule"}],
                "imagePullSecrets": [{"name": "registry"}],
            }
        ),
        with_spec(fork=FORK),
        with_spec(fork=FORK | {"uri": "gs://b/p/demo-1/", "trainInherited": True}),
        with_spec(sandbox__pod__resources={"cpu": "500m", "cpuLimit": "2", "memory": "1.5Gi"}),
    ],
)
def test_what_the_model_accepts_for_a_cluster_is_accepted(
    place: Place, spec: dict[str, Any]
) -> None:
    job = place.job(spec)

    must("create", "--dry-run=server", "-f", "-", text=job)
    parse_job(json.dumps(job | {"apiVersion": API_VERSION}), source="job")


def test_the_stored_job_is_the_one_that_the_file_means(place: Place) -> None:
    written = with_spec(limits__turns=7, workers__resources={"cpu": "1"})
    job = place.created(written)

    stored = job.get()["spec"]

    def parsed(spec: dict[str, Any]) -> object:
        whole = place.job(spec, name=job.name) | {"apiVersion": API_VERSION}
        return parse_job(json.dumps(whole), source="job").spec

    assert stored["limits"]["contextTokens"] == 32768
    assert stored["sandbox"]["pod"]["resources"]["memory"] == "2Gi"
    assert parsed(stored) == parsed(written)


def test_a_pod_template_is_kept_as_it_was_written(place: Place) -> None:
    template = {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}}
    job = place.created(with_spec(sandbox__pod__template=template))

    assert job.get()["spec"]["sandbox"]["pod"]["template"] == {"metadata": {}, **template}


def test_extensions_are_kept_as_they_were_written_and_can_not_change(place: Place) -> None:
    own = {"use": "my_tools:lint", "with": {"level": 3, "names": ["a", {"b": None}]}}
    file = {"name": "my_tools.py", "sha256": "a" * 64}
    job = place.created(
        with_spec(
            agent={"use": "my_agents:planner", "with": {"depth": 2}, "tools": ["bash", own]},
            grading={"reward": ["resolved", {"use": "my_rewards:small", "weight": 0.5}]},
            extensions=[file],
        )
    )

    spec = job.get()["spec"]
    assert spec["agent"]["tools"] == ["bash", own]
    assert spec["agent"]["with"] == {"depth": 2}
    assert spec["grading"]["reward"] == ["resolved", {"use": "my_rewards:small", "weight": 0.5}]
    assert job.patched({"spec": {"parallelism": 9}}).returncode == 0
    for change in (
        {"extensions": None},
        {"extensions": [{**file, "sha256": "b" * 64}]},
        {"agent": {"tools": ["bash", {**own, "with": {"level": 4}}]}},
        {"grading": {"reward": ["resolved", {"use": "my_rewards:small", "weight": 0.6}]}},
    ):
        done = job.patched({"spec": change})
        assert done.returncode != 0, change
        assert "can't change" in done.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": {"include": ["django__*"]}}, "`dataset` can't change.*same name and store"),
        ({"samples": 8}, "`samples` can't change"),
        ({"policy": {"tokenizer": "Qwen/Qwen3-8B"}}, "`policy` can't change"),
        ({"sampling": {"seed": 1}}, "`sampling` can't change"),
        ({"limits": {"turns": 3}}, "`limits` can't change"),
        ({"agent": {"systemPrompt": "Be brief."}}, "`agent` can't change"),
        ({"grading": {"enabled": False}}, "`grading` can't change"),
        ({"store": {"uri": "s3://other"}}, "`store` can't change"),
        ({"agent": {"tools": ["bash"]}}, "`agent` can't change"),
        ({"agent": {"tools": ["bash", {"use": "a:b", "with": {"c": 1}}]}}, "`agent` can't change"),
        ({"grading": {"reward": [{"use": "a:b"}]}}, "`grading` can't change"),
        ({"extensions": [{"name": "a.py", "sha256": "0" * 64}]}, "`extensions` can't change"),
        ({"fork": FORK}, "spec.fork: .*`fork` can't change.*another metadata.name"),
        ({"workers": {"count": 3}}, "change spec.parallelism"),
    ],
)
def test_fields_that_make_trajectories_comparable_are_immutable(
    stored: Job, change: dict[str, Any], words: str
) -> None:
    done = stored.patched({"spec": change})

    assert done.returncode != 0
    assert re.search(words, done.stderr)


@pytest.fixture(scope="module")
def stored(place: Place) -> Job:
    """Create a job that no test changes."""
    return place.created(GOOD)


def test_the_turn_that_a_job_begins_from_is_immutable(place: Place) -> None:
    job = place.created(with_spec(fork=FORK))

    for change in ({"turn": 4}, {"sample": 1}, {"trainInherited": True}, None):
        done = job.patched({"spec": {"fork": change}})
        assert done.returncode != 0, change
        assert re.search(r"spec.fork: .*`fork` can't change.*same turn", done.stderr)


def test_pace_sandboxes_and_retries_may_change(place: Place) -> None:
    job = place.created(GOOD)

    done = job.patched(
        {
            "spec": {
                "parallelism": 16,
                "suspend": True,
                "retry": {"attempts": 5},
                "sandbox": {"pod": {"resources": {"memory": "4Gi"}}},
                "activeDeadlineSeconds": 60,
            }
        }
    )

    assert done.returncode == 0, done.stderr
    assert job.get()["spec"]["parallelism"] == 16


def test_scale_changes_parallelism_and_reads_what_runs(place: Place) -> None:
    job = place.created(GOOD)
    status = {"episodes": {"running": 3}, "selector": "swe-rollout.dev/job=x"}
    assert job.patched({"status": status}, "--subresource=status").returncode == 0

    job("scale", "--replicas=7")
    scale = json.loads(job("get", "--subresource=scale", "-o", "json"))

    assert job.get()["spec"]["parallelism"] == 7
    assert scale["status"] == {"replicas": 3, "selector": "swe-rollout.dev/job=x"}
    none = kubectl("scale", place.resource, job.name, "-n", place.namespace, "--replicas=0")
    assert "to pause the job, set spec.suspend" in none.stderr


CONDITION: Final = {
    "type": "Failed",
    "status": "True",
    "reason": "BudgetSpent",
    "message": "too much broke",
    "lastTransitionTime": "2026-11-20T10:00:00Z",
}
STATUS: Final = {
    "state": "Failed",
    "progress": "182/320",
    "resolved": "66/182",
    "meanReward": "0.36",
    "policy": "scripted",
    "episodes": {"total": 320, "committed": 182, "running": 64, "masked": 2},
    "conditions": [
        CONDITION,
        CONDITION | {"type": "ModelReady", "reason": "Ready"},
        CONDITION | {"type": "SandboxesReady", "status": "False", "reason": "ImageUnavailable"},
    ],
}


def test_columns_show_the_progress_of_a_job(place: Place) -> None:
    job = place.created(GOOD)
    assert job.patched({"status": STATUS}, "--subresource=status").returncode == 0

    header, row = job("get").splitlines()
    wide_header, wide_row = job("get", "-o", "wide").splitlines()

    assert header.split() == [
        "NAME", "STATE", "DONE", "RESOLVED", "REWARD", "MASKED", "RUNNING", "POLICY", "AGE"
    ]  # fmt: skip
    assert row.split()[1:8] == ["Failed", "182/320", "66/182", "0.36", "2", "64", "scripted"]
    assert wide_header.split()[9:] == ["PARALLELISM", "STORE", "ENGINE", "SANDBOXES", "REASON"]
    assert wide_row.split()[9:] == [
        "4", "s3://rollouts", "Ready", "ImageUnavailable", "BudgetSpent"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"state": "Finished"}, "Unsupported value"),
        ({"conditions": [CONDITION, CONDITION]}, "Duplicate value"),
        ({"conditions": [CONDITION | {"lastTransitionTime": "now"}]}, "date-time"),
    ],
)
def test_a_status_that_no_reader_expects_is_rejected(
    stored: Job, status: dict[str, Any], words: str
) -> None:
    done = stored.patched({"status": status}, "--subresource=status")

    assert done.returncode != 0
    assert words in done.stderr


def test_only_the_operator_writes_the_status(stored: Job) -> None:
    stored.patched({"status": {"state": "Complete"}})

    assert "status" not in stored.get()


def test_explain_reads_like_the_documentation(place: Place) -> None:
    version = f"--api-version={place.group}/v1alpha1"

    sampling = must("explain", "rolloutjobs.spec.sampling", version)
    sandbox = must("explain", "rolloutjobs.spec.sandbox", version)

    assert "How the policy samples." in sampling
    assert re.search(r"topP\s+<number>\n\s+Keep the most likely.*\n?.*Default:\s+1\.0\.", sampling)
    assert "Set exactly one of `local`" in sandbox


def test_the_operators_pod_keeps_the_strictest_pod_security_level(place: Place) -> None:
    """A Deployment only causes a warning; its pod, created alone, would be rejected."""
    [deployment] = [
        each for each in yaml.safe_load_all(manifests()) if each["kind"] == "Deployment"
    ]
    spec = deployment["spec"]["template"]["spec"] | {"serviceAccountName": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    level = "pod-security.kubernetes.io/enforce"
    name = f"{place.namespace}-strict"
    must("create", "namespace", name)
    must("label", "namespace", name, f"{level}=restricted")

    try:
        wait_for_default_account(name)
        must("create", "--dry-run=server", "-n", name, "-f", "-", text=pod)
        root = {**pod, "spec": {**spec, "securityContext": {}}}
        refused = kubectl("create", "--dry-run=server", "-n", name, "-f", "-", text=root)
    finally:
        must("delete", "namespace", name, "--wait=false")
    assert 'violates PodSecurity "restricted' in refused.stderr


def wait_for_default_account(namespace: str) -> None:
    must("wait", "--for=create", "serviceaccount/default", "-n", namespace, "--timeout=20s")


def test_kustomize_and_install_apply_the_same() -> None:
    def by_name(text: str) -> dict[tuple[str, str], object]:
        return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}

    base = by_name(must("kustomize", str(ROOT / "manifests")))

    assert ("CustomResourceDefinition", CRD_NAME) in base
    assert base == by_name(manifests())
    assert GROUP in CRD_NAME


def test_the_api_server_accepts_every_installed_object() -> None:
    """Validate all fields strictly; namespaced objects need their namespace first."""
    documents = [
        each for each in yaml.safe_load_all(manifests()) if "namespace" not in each["metadata"]
    ]
    together = {"apiVersion": "v1", "kind": "List", "items": documents}

    done = must(
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "-f",
        "-",
        text=together,
    )

    assert len(done.splitlines()) == len(documents)
