"""What a tenant can't do: attacks by an account whose only right is RolloutJobs, on a real cluster.

A job may bring its own worker image, so the account of its workers is the tenant's as well: the
attacks of a worker are tried with its token, without our code in between. No operator is needed.
"""

from __future__ import annotations

import copy
import json
import secrets
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from cluster.needs import BUSYBOX, CLUSTER
from cluster.site import RJ, install_crd, kubectl, until
from cluster.tenant import Account, account, tenant
from pod_templates import ALLOWED, FORBIDDEN, Attempt
from rollout_dev.access import PAGE, REQUESTS, table, with_table
from swe_rollout.cluster.objects import OwnerReference
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods.pod_spec import RunIdentity, pod_manifest, with_template
from swe_rollout.sandbox.pods.warm_spec import warm_manifest
from swe_rollout.spec.job import API_VERSION, KIND
from swe_rollout.spec.pod_template import PodTemplate
from swe_rollout.spec.sandbox import PodSandbox, Resources
from swe_rollout.types.episode import EpisodeId

pytestmark = CLUSTER
Json = dict[str, Any]
ROOT: Final = Path(__file__).resolve().parents[2]
MARK: Final = "swe-rollout.dev/allow-workers=true"
OPERATOR: Final = "system:serviceaccount:swe-rollout-system:swe-rollout-operator"


@dataclass
class Scene:
    """A namespace with a tenant, two of its jobs, and the account of the first one's workers."""

    namespace: str
    person: Account
    worker: Account
    uid: str
    other_uid: str
    names: dict[str, str]
    """Of the two jobs, by uid."""
    made: int = field(default=0)

    def job(self, **spec: object) -> Json:
        """Build a job that never starts."""
        self.made += 1
        return job(f"job-{self.made}-{secrets.token_hex(2)}", self.namespace, **spec)

    def sandbox(
        self,
        *,
        uid: str = "",
        template: Json | None = None,
        spec: PodSandbox | None = None,
        grading_s: float = 0.0,
    ) -> Json:
        """Build the pod that a worker makes for an episode."""
        self.made += 1
        request = SandboxRequest(
            EpisodeId("job", "one", self.made),
            Role.AGENT,
            BUSYBOX,
            "/tmp",  # noqa: S108
            grading_s=grading_s,
        )
        found = None if template is None else PodTemplate.model_validate(template)
        manifest = pod_manifest(request, spec or SMALL, owner(uid or self.uid, self.names))
        made: Json = json.loads(msgspec.json.encode(with_template(manifest, found)))
        return {"apiVersion": "v1", "kind": "Pod", **made}


SMALL: Final = PodSandbox(resources=Resources(cpu="10m", memory="32Mi", ephemeral_storage="16Mi"))


def owner(uid: str, names: dict[str, str]) -> RunIdentity:
    """Build the identity of a worker's run."""
    reference = OwnerReference(api_version=API_VERSION, kind=KIND, name=names[uid], uid=uid)
    return RunIdentity(run="0123456789ab", started="now", job=reference)


def job(name: str, namespace: str, **spec: object) -> Json:
    """Build a suspended job."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "dataset": {"releasePairs": {}},
            "policy": {"scripted": {}},
            "sandbox": {"pod": {}},
            "store": {"uri": "s3://rollouts"},
            "suspend": True,
            **spec,
        },
    }


def admin(*arguments: str, document: object = None, check: bool = True) -> str:
    """Run kubectl as the administrator of the cluster."""
    stdin = "" if document is None else json.dumps(document)
    return kubectl(*arguments, stdin=stdin, check=check)


@pytest.fixture(scope="module", autouse=True)
def _policies() -> None:
    """Apply what `swe-rollout install` prints, but for the operator's Deployment."""
    documents = [
        each
        for each in yaml.safe_load_all((ROOT / "swe_rollout/cli/install.yaml").read_text())
        if each["kind"] != "Deployment"
    ]
    bundle = yaml.safe_dump_all(documents)
    install_crd()
    apply = ("apply", "--server-side", "--force-conflicts", "--filename", "-")
    until(
        lambda: bool(kubectl(*apply, stdin=bundle, check=False)),
        within_s=30,
        details=lambda: "the manifests can't be applied",
    )


@pytest.fixture(scope="module")
def scene(_policies: None) -> Iterator[Scene]:
    namespace = f"swe-rollout-tenant-{secrets.token_hex(3)}"
    admin("create", "namespace", namespace)
    try:
        with tenant(namespace) as person:
            first, second = (
                person.create(job(name, namespace))["metadata"]["uid"] for name in ("one", "two")
            )
            worker = account(
                namespace, f"swe-rollout-worker-{first}", role="ClusterRole/swe-rollout-worker"
            )
            with worker as acting:
                names = {first: "one", second: "two"}
                found = Scene(namespace, person, acting, first, second, names)
                _until_enforced(found)
                yield found
    finally:
        admin("delete", RJ, "--all", "--namespace", namespace, "--timeout=60s", check=False)
        admin("delete", "namespace", namespace, "--wait=false", check=False)


def _until_enforced(scene: Scene) -> None:
    """Wait until the API server has compiled new policies: one of each file refuses something."""
    pod = scene.sandbox()
    pod["spec"]["hostPID"] = True
    template = {"pod": {"template": {"spec": {"hostPID": True}}}}
    create = ("create", "--dry-run=server", "--validate=ignore", "--filename", "-")
    until(
        lambda: (
            scene.worker.run(*create, document=pod).returncode != 0
            and scene.person.run(*create, document=scene.job(sandbox=template)).returncode != 0
        ),
        within_s=60,
        details=lambda: "the policies are not enforced",
    )


# --- the template of a job ------------------------------------------------------------------------


@pytest.mark.threat(point=26)
@pytest.mark.parametrize("attempt", FORBIDDEN, ids=str)
def test_a_template_beyond_the_list_is_refused_by_the_api_server(
    scene: Scene, attempt: Attempt
) -> None:
    document = scene.job(sandbox={"pod": {"template": attempt.template}})
    if _has_null(attempt.template) and _is_taken_without_null(scene, document):
        return
    refusal = scene.person.refused_creation(document)
    assert "spec.sandbox.pod.template" in refusal
    assert attempt.field.partition("/")[0] in refusal


def _has_null(value: object) -> bool:
    match value:
        case dict():
            return any(map(_has_null, value.values()))
        case list():
            return any(map(_has_null, value))
        case _:
            return value is None


def _is_taken_without_null(scene: Scene, document: Json) -> bool:
    """Whether the API server drops the null of a field that it knows, which removes nothing."""
    done = scene.person.run(
        *("create", "--dry-run=server", "-f", "-", "-o", "json"), document=document
    )
    if done.returncode != 0:
        return False
    stored = json.loads(done.stdout)["spec"]["sandbox"]["pod"]["template"]
    pod = scene.sandbox(template=stored)["spec"]["containers"][0]
    return (
        not _has_null(stored)
        and pod["resources"] == scene.sandbox()["spec"]["containers"][0]["resources"]
    )


@pytest.mark.threat(point=26)
@pytest.mark.parametrize("template", ALLOWED.values(), ids=ALLOWED)
def test_a_template_of_the_list_makes_a_job_and_pods(scene: Scene, template: Json) -> None:
    scene.person.create(scene.job(sandbox={"pod": {"template": template}}), dry=True)
    scene.worker.create(scene.sandbox(template=template), dry=True)


@pytest.mark.threat(point=26)
def test_a_template_can_not_be_changed_into_another(scene: Scene) -> None:
    made = scene.person.create(scene.job(sandbox={"pod": {"template": ALLOWED["names"]}}))
    name = made["metadata"]["name"]
    patch = json.dumps({"spec": {"sandbox": {"pod": {"template": {"spec": {"hostPID": True}}}}}})
    change = ("patch", RJ, name, "--type=merge", "--patch", patch)
    assert "spec.hostPID: not for a job to set" in _refused_admin(scene, *change)
    # A change elsewhere is no reason to look at the template again.
    admin(
        "-n", scene.namespace, "patch", RJ, name, "--type=merge", "-p", '{"spec":{"parallelism":2}}'
    )


@pytest.mark.threat(point=26)
@pytest.mark.parametrize(
    "wrong",
    [
        {"workers": {"resources": {"memory": "100Ti"}}},
        {"workers": {"labels": {"azure.workload.identity/use": "true"}}},
        {"workers": {"labels": {"swe-rollout.dev/role": "agent"}}},
        {"sandbox": {"pod": {"resources": {"cpu": "9999"}}}},
        {"sandbox": {"pod": {"namespace": "kube-system"}}},
        {"sandbox": {"pod": {"runAsUser": 0}}},
    ],
    ids=str,
)
def test_the_other_settings_of_pods_have_bounds_too(scene: Scene, wrong: Json) -> None:
    scene.person.refused_creation(scene.job(**wrong))


# --- the pods of a worker -------------------------------------------------------------------------

EVIL: Final = {"name": "evil", "image": BUSYBOX, "command": ["sleep", "1"]}
PODS: Final[dict[str, Json]] = yaml.safe_load(
    Path(__file__).with_name("refused_pods.yaml").read_text("utf-8")
)
REMOVED: Final = "(removed)"


def changed(pod: Json, changes: Json) -> Json:
    """Change a pod at JSON pointers; one behind the end of a list appends."""
    for pointer, value in changes.items():
        *parents, last = [each.replace("~1", "/") for each in pointer.split("/")[1:]]
        inner: Any = pod
        for parent in parents:
            inner = inner[int(parent) if isinstance(inner, list) else parent]
        if value == REMOVED:
            del inner[last]
        elif isinstance(inner, list):
            inner[int(last) :] = [value]
        else:
            inner[last] = value
    return pod


@pytest.mark.threat(point=25)
@pytest.mark.threat(point=26)
@pytest.mark.parametrize("changes", PODS.values(), ids=PODS)
def test_a_worker_of_ones_own_can_not_make_another_pod(scene: Scene, changes: Json) -> None:
    assert "denied request" in scene.worker.refused_creation(changed(scene.sandbox(), changes))


@pytest.mark.threat(point=25)
@pytest.mark.parametrize(
    "changes",
    [each for each in PODS.values() if any("containers/0" in at for at in each)],
)
def test_a_graders_container_is_held_to_the_same(scene: Scene, changes: Json) -> None:
    beside = {at.replace("containers/0", "containers/1"): what for at, what in changes.items()}
    pod = changed(scene.sandbox(grading_s=60.0), beside)
    assert "denied request" in scene.worker.refused_creation(pod)


@pytest.mark.threat(point=25)
def test_a_graders_container_has_the_agents_image(scene: Scene) -> None:
    pod = changed(scene.sandbox(grading_s=60.0), {"/spec/containers/1/image": "evil:1"})
    assert "denied request" in scene.worker.refused_creation(pod)


@pytest.mark.threat(point=25)
def test_a_worker_makes_no_pod_with_a_name_of_another_job(scene: Scene) -> None:
    pod = scene.sandbox()
    pod["metadata"]["name"] = pod["metadata"]["name"][:-8] + "ffffffff"
    assert "denied request" in scene.worker.refused_creation(pod)


@pytest.mark.threat(point=25)
def test_our_worker_makes_sandboxes_and_waiting_pods(scene: Scene) -> None:
    scene.worker.create(scene.sandbox(), dry=True)
    scene.worker.create(scene.sandbox(grading_s=60.0), dry=True)
    waiting = warm_manifest(
        BUSYBOX, job="job", lifetime_s=60, sandbox=SMALL, owner=owner(scene.uid, scene.names)
    )
    made: Json = json.loads(msgspec.json.encode(waiting))
    scene.worker.create({"apiVersion": "v1", "kind": "Pod", **made}, dry=True)


@pytest.mark.parametrize(
    "bundles",
    [
        {"bundles": {"/opt/harness": "mine/codex:1"}},
        {"bundle_claims": {"/opt/harness": "swe-rollout-bundle-codex-1"}},
    ],
)
def test_our_worker_gives_bundles_to_agents(scene: Scene, bundles: Json) -> None:
    scene.worker.create(scene.sandbox(spec=SMALL.model_copy(update=bundles)), dry=True)


def test_what_a_cluster_adds_to_pods_is_let_through(scene: Scene) -> None:
    bounds = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "cpu"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]},
    }
    admin("-n", scene.namespace, "create", "-f", "-", document=bounds)
    try:
        pod = scene.sandbox()
        pod["spec"]["securityContext"]["seLinuxOptions"] = {"level": "s0:c1,c2"}
        pod["metadata"]["annotations"]["openshift.io/scc"] = "restricted-v2"

        def is_limited() -> bool:
            return "limit-ranger" in json.dumps(scene.worker.create(pod, dry=True))

        until(is_limited, within_s=20, details=lambda: "LimitRange does nothing")
    finally:
        admin("-n", scene.namespace, "delete", "limitrange", "cpu")


@pytest.mark.threat(point=25)
def test_a_worker_makes_no_pod_for_another_job(scene: Scene) -> None:
    assert "denied request" in scene.worker.refused_creation(scene.sandbox(uid=scene.other_uid))


@pytest.mark.threat(point=26)
def test_a_default_priority_class_is_allowed_by_the_namespace(scene: Scene) -> None:
    name = f"tenancy-{secrets.token_hex(3)}"
    admin("create", "priorityclass", name, "--value=10")
    try:
        pod = scene.sandbox()
        pod["spec"]["priorityClassName"] = name
        assert "priority class" in scene.worker.refused_creation(pod)
        allow = f"swe-rollout.dev/priority-class={name}"
        admin("label", "namespace", scene.namespace, allow)
        until_ended(lambda: scene.worker.run(*DRY, document=pod), refused=False)
    finally:
        admin("label", "namespace", scene.namespace, "swe-rollout.dev/priority-class-")
        admin("delete", "priorityclass", name)


ROLE: Final = {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/rollouts"}
LIST: Final = "swe-rollout.dev/worker-identities"


@pytest.mark.threat(point=25)
def test_workers_have_the_identities_that_the_namespace_lists(scene: Scene) -> None:
    """For the job, and again for the account that the operator creates."""
    document = scene.job(workers={"serviceAccountAnnotations": ROLE})
    owned = {"name": "account", "namespace": scene.namespace, "annotations": ROLE}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": owned}
    until_refused(scene, document)
    refusal = scene.person.refused_creation(document)
    assert "this namespace does not allow eks.amazonaws.com/role-arn" in refusal
    ((name, value),) = ROLE.items()
    cure = f"kubectl annotate --overwrite namespace {scene.namespace} {LIST}='{name}={value}'"
    assert cure in refusal
    assert "does not allow" in operator_refused(scene, *DRY, document=account)
    try:
        admin("annotate", "namespace", scene.namespace, f"{LIST}=other/name=x\n{name}={value}")
        until_ended(lambda: scene.person.run(*DRY, document=document), refused=False)
        made = _run_admin(scene, "--as", OPERATOR, *DRY, document=account)
        assert made.returncode == 0, made.stderr
        other = scene.job(workers={"serviceAccountAnnotations": {name: f"{value}-of-another"}})
        assert "does not allow" in scene.person.refused_creation(other)
    finally:
        admin("annotate", "namespace", scene.namespace, f"{LIST}-")


# --- pods of others -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pods(scene: Scene) -> Iterator[dict[str, str]]:
    """Running pods: the tenant's own sandbox, one of another job, one of other people."""
    own, other = scene.sandbox(), scene.sandbox(uid=scene.other_uid)
    foreign = copy.deepcopy(own)
    foreign["metadata"] = {"name": "web", "namespace": scene.namespace, "labels": {"app": "web"}}
    made = {"own": own, "other": other, "foreign": foreign}
    for pod in made.values():
        pod["metadata"]["namespace"] = scene.namespace
        admin("create", "-f", "-", document=pod)
    names = {kind: pod["metadata"]["name"] for kind, pod in made.items()}
    admin(
        "-n",
        scene.namespace,
        "wait",
        "--for=condition=Ready",
        "--timeout=90s",
        *(f"pod/{name}" for name in names.values()),
    )
    yield names
    admin("-n", scene.namespace, "delete", "pods", "--all", "--wait=false", check=False)


@pytest.mark.threat(point=25)
def test_a_worker_execs_into_its_own_sandboxes(scene: Scene, pods: dict[str, str]) -> None:
    assert scene.worker.must("exec", pods["own"], "--", "echo", "inside").strip() == "inside"


@pytest.mark.threat(point=25)
@pytest.mark.parametrize("whose", ["other", "foreign"])
def test_a_worker_execs_into_no_other_pod(scene: Scene, pods: dict[str, str], whose: str) -> None:
    refusal = scene.worker.refused("exec", pods[whose], "--", "id")
    assert "its own RolloutJob only" in refusal


@pytest.mark.threat(point=25)
@pytest.mark.parametrize("whose", ["other", "foreign"])
@pytest.mark.parametrize(
    "change",
    [
        ("delete", "pod", "{}", "--wait=false"),
        ("delete", "pod", "{}", "--grace-period=0", "--force", "--wait=false"),
        ("label", "pod", "{}", "team=mine"),
        ("annotate", "pod", "{}", "swe-rollout.dev/progress=x"),
        ("set", "image", "pod/{}", "sandbox=evil"),
    ],
    ids=" ".join,
)
def test_a_worker_changes_and_deletes_no_other_pod(
    scene: Scene, pods: dict[str, str], whose: str, change: tuple[str, ...]
) -> None:
    arguments = [each.format(pods[whose]) for each in change]
    assert "sandboxes of its own RolloutJob only" in scene.worker.refused(*arguments)


@pytest.mark.threat(point=25)
def test_deleting_all_pods_deletes_none_of_others(scene: Scene, pods: dict[str, str]) -> None:
    path = f"/api/v1/namespaces/{scene.namespace}/pods"
    for selector in ("app%3Dweb", f"swe-rollout.dev/job-uid%3D{scene.other_uid}"):
        scene.worker.refused("delete", "--raw", f"{path}?labelSelector={selector}")
    doomed = scene.sandbox()
    doomed["metadata"]["labels"]["swe-rollout.dev/run"] = "doomed"
    scene.worker.create(doomed)
    scene.worker.must("delete", "--raw", f"{path}?labelSelector=swe-rollout.dev/run%3Ddoomed")
    left = admin("-n", scene.namespace, "get", "pods", "-o", "name")
    assert set(pods.values()) <= {line.removeprefix("pod/") for line in left.splitlines()}


@pytest.mark.threat(point=25)
@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"ownerReferences": None}},
        {"metadata": {"finalizers": ["a.example/never"]}},
        {"metadata": {"labels": {"swe-rollout.dev/role": "worker"}}},
        {"metadata": {"labels": {"swe-rollout.dev/role": None}}},
        {"metadata": {"labels": {"swe-rollout.dev/job-uid": "x"}}},
        {"metadata": {"labels": {"swe-rollout.dev/run": None}}},
        {"metadata": {"labels": {"app": "web"}}},
        {"metadata": {"annotations": {"cni.projectcalico.org/ipAddrs": "x"}}},
        {"spec": {"containers": [{"name": "sandbox", "image": "evil"}]}},
        [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
    ],
    ids=json.dumps,
)
def test_a_sandbox_stays_what_it_was(
    scene: Scene, pods: dict[str, str], patch: Json | list[Json]
) -> None:
    kind = "json" if isinstance(patch, list) else "strategic"
    change = ("patch", "pod", pods["own"], f"--type={kind}", "--patch", json.dumps(patch))
    assert "denied request" in scene.worker.refused(*change)


@pytest.mark.threat(point=25)
def test_a_worker_claims_a_waiting_sandbox(scene: Scene, pods: dict[str, str]) -> None:
    patch = {
        "metadata": {
            "labels": {
                "swe-rollout.dev/role": "grader",
                "swe-rollout.dev/sample": "7",
                "swe-rollout.dev/run": "the-next-process",
            },
            "annotations": {"swe-rollout.dev/address": "job/one/7"},
        },
        "spec": {"activeDeadlineSeconds": 900},
    }
    scene.worker.must("patch", "pod", pods["own"], "--patch", json.dumps(patch))


@pytest.mark.threat(point=25)
@pytest.mark.parametrize(
    "subresource", ["attach", "portforward", "proxy", "log", "ephemeralcontainers", "eviction"]
)
def test_a_worker_has_no_other_way_into_a_pod(scene: Scene, subresource: str) -> None:
    for verb in ("get", "create", "update", "patch"):
        can_i = ("auth", "can-i", verb, "pods", f"--subresource={subresource}")
        assert scene.worker.run(*can_i).stdout.strip() == "no"


@pytest.mark.threat(point=25)
def test_of_its_own_pod_a_worker_changes_the_progress_only(scene: Scene) -> None:
    name = "own-worker"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"swe-rollout.dev/role": "worker"}},
        "spec": {
            "serviceAccountName": f"swe-rollout-worker-{scene.uid}",
            "containers": [{**EVIL, "name": "worker"}],
        },
    }
    admin("-n", scene.namespace, "create", "-f", "-", document=pod)
    scene.worker.must("annotate", "pod", name, "swe-rollout.dev/progress={}")
    for wrong in (
        ("annotate", "pod", name, "other=x"),
        ("label", "pod", name, "app=web"),
        ("label", "pod", name, "swe-rollout.dev/role-"),
        ("set", "image", f"pod/{name}", "worker=other"),
        ("delete", "pod", name, "--wait=false"),
    ):
        assert "denied request" in scene.worker.refused(*wrong)


# --- labels ---------------------------------------------------------------------------------------

SERVICE: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Service",
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
}


@pytest.mark.threat(point=25)
def test_a_job_does_not_take_the_label_of_a_service(scene: Scene) -> None:
    metadata = {"name": "web", "namespace": scene.namespace}
    admin("create", "-f", "-", document={**SERVICE, "metadata": metadata})
    labels = {"labels": {"app": "other"}}
    words = "the Service web chooses its pods by the label app"
    until_refused(scene, scene.job(workers=labels))
    template = {"pod": {"template": {"metadata": labels}}}
    assert words in scene.person.refused_creation(scene.job(workers=labels))
    assert words in scene.person.refused_creation(scene.job(sandbox=template))
    assert words in scene.worker.refused_creation(scene.sandbox(template={"metadata": labels}))
    worker = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "labelled", **labels},
        "spec": {"serviceAccountName": f"swe-rollout-worker-{scene.uid}", "containers": [EVIL]},
    }
    assert words in _refused_admin(scene, *DRY, document=worker)
    admin("-n", scene.namespace, "delete", "service", "web")


# --- Secrets --------------------------------------------------------------------------------------


def secret(scene: Scene, name: str, *, marked: bool) -> None:
    """Create a Secret, as the people do who may."""
    labels = {"swe-rollout.dev/allow-workers": "true"} if marked else {}
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": scene.namespace, "labels": labels},
        "stringData": {"KEY": "value"},
    }
    admin("create", "-f", "-", document=body)


def naming(scene: Scene, name: str, where: str) -> Json:
    """Build a job that names the Secret."""
    if where == "workers":
        return scene.job(workers={"secrets": [name]})
    if where == "workers' image":
        return scene.job(workers={"imagePullSecrets": [{"name": name}]})
    template = {"spec": {"imagePullSecrets": [{"name": name}]}}
    return scene.job(sandbox={"pod": {"template": template}})


DRY: Final = ("create", "--dry-run=server", "-f", "-")


def until_refused(scene: Scene, document: Json) -> None:
    """Wait until the API server's policies have seen a new object, and refuse the document."""
    until_ended(lambda: scene.person.run(*DRY, document=document), refused=True)


def until_ended(run: Callable[[], subprocess.CompletedProcess[str]], *, refused: bool) -> None:
    """Run a command until it is refused, or is not."""
    until(lambda: (run().returncode != 0) is refused, within_s=20, details=lambda: run().stderr)


@pytest.mark.threat(point=25)
@pytest.mark.parametrize("where", ["workers", "workers' image", "template"])
def test_a_job_gets_marked_secrets_only(scene: Scene, where: str) -> None:
    name = f"prod-{where}".replace("' ", "-")
    secret(scene, name, marked=False)
    document = naming(scene, name, where)
    until_refused(scene, document)
    refusal = scene.person.refused_creation(document)
    assert f"label secret {name} {MARK}" in refusal
    assert "value" not in refusal

    admin("-n", scene.namespace, "label", "secret", name, MARK)
    until_ended(lambda: scene.person.run(*DRY, document=document), refused=False)


@pytest.mark.threat(point=25)
def test_a_job_can_not_be_changed_to_name_a_secret(scene: Scene) -> None:
    secret(scene, "prod-later", marked=False)
    until_refused(scene, naming(scene, "prod-later", "workers"))
    name = scene.person.create(scene.job())["metadata"]["name"]
    patch = json.dumps({"spec": {"workers": {"secrets": ["prod-later"]}}})
    change = ("patch", RJ, name, "--type=merge", "--patch", patch)
    assert "not marked for rollouts" in _refused_admin(scene, *change)


@pytest.mark.threat(point=25)
def test_a_secret_that_a_job_waits_for_can_not_be_made_without_the_mark(scene: Scene) -> None:
    name = scene.person.create(naming(scene, "prod-future", "workers"))["metadata"]["name"]
    create = ("create", "secret", "generic", "prod-future", "--from-literal=A=B")
    until_ended(lambda: _run_admin(scene, *create, "--dry-run=server"), refused=True)
    assert f"the RolloutJob {name} names a Secret prod-future" in _refused_admin(scene, *create)
    secret(scene, "prod-future", marked=True)


@pytest.mark.threat(point=25)
def test_a_worker_pod_does_not_start_with_a_secret_that_lost_its_mark(scene: Scene) -> None:
    secret(scene, "prod-once", marked=False)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "with-secret"},
        "spec": {
            "serviceAccountName": f"swe-rollout-worker-{scene.uid}",
            "containers": [{**EVIL, "envFrom": [{"secretRef": {"name": "prod-once"}}]}],
        },
    }
    until_ended(lambda: _run_admin(scene, *DRY, document=pod), refused=True)
    assert "not marked for rollouts" in _refused_admin(scene, *DRY, document=pod)


@pytest.mark.threat(point=25)
@pytest.mark.parametrize("who", ["person", "worker"])
def test_neither_tenant_nor_worker_reads_or_marks_a_secret(scene: Scene, who: str) -> None:
    acting: Account = getattr(scene, who)
    for verb in ("get", "list", "watch", "create", "update", "patch", "delete"):
        assert acting.run("auth", "can-i", verb, "secrets").stdout.strip() == "no"


# --- other rights ---------------------------------------------------------------------------------


@pytest.mark.threat(point=25)
@pytest.mark.parametrize(
    "right",
    [
        "create pods",
        "get pods",
        "watch pods",
        "create serviceaccounts",
        "create rolebindings",
        "create configmaps",
        "create jobs.batch",
        "create events",
        "patch rolloutjobs",
        "update namespaces",
        "impersonate serviceaccounts",
        "create validatingadmissionpolicies",
    ],
)
def test_a_tenant_has_no_other_right(scene: Scene, right: str) -> None:
    verb, resource = right.split()
    assert scene.person.run("auth", "can-i", verb, resource).stdout.strip() == "no"


@pytest.mark.threat(point=25)
@pytest.mark.parametrize("namespace", ["kube-system", "default", "swe-rollout-system"])
def test_a_worker_has_no_right_in_another_namespace(scene: Scene, namespace: str) -> None:
    for verb, resource in (("get", "pods"), ("create", "pods"), ("list", "rolloutjobs")):
        answer = scene.worker.run("auth", "can-i", verb, resource, "-n", namespace).stdout
        assert answer.strip() == "no"


@pytest.mark.threat(point=25)
def test_the_page_of_rights_says_what_the_cluster_answers() -> None:
    page = PAGE.read_text(encoding="utf-8")
    made = table()
    assert made.count("\n") == len(REQUESTS) + 2
    assert with_table(page, made) == page, "write it again: scripts/access-table"


# --- the operator ---------------------------------------------------------------------------------


def _run_admin(
    scene: Scene, *arguments: str, document: object = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["kubectl", "--namespace", scene.namespace, *arguments],
        input=None if document is None else json.dumps(document),
        capture_output=True,
        text=True,
        check=False,
    )


def _refused_admin(scene: Scene, *arguments: str, document: object = None) -> str:
    done = _run_admin(scene, *arguments, document=document)
    assert done.returncode != 0, f"{arguments} was let through"
    return done.stderr


def operator_refused(scene: Scene, *arguments: str, document: object = None) -> str:
    """Act as the operator's account; return the refusal."""
    return _refused_admin(scene, "--as", OPERATOR, *arguments, document=document)


@pytest.mark.threat(point=25)
def test_the_operator_deletes_no_pod_but_sandboxes_and_workers(
    scene: Scene, pods: dict[str, str]
) -> None:
    workers = worker_job(scene)
    workers["metadata"]["name"] = "one-with-pods"
    workers["spec"]["suspend"] = True
    made = json.loads(
        admin("-n", scene.namespace, "create", "-f", "-", "-o", "json", document=workers)
    )
    own = f"swe-rollout-worker-{scene.uid}"
    for name, of, role in (
        ("worker", own, "worker"),
        ("no-worker", "default", "worker"),
        ("no-role", own, "web"),
    ):
        pod = _worker_pod(name, scene.uid, owner=made["metadata"]["uid"], account=of)
        pod["metadata"]["labels"]["swe-rollout.dev/role"] = role
        admin("-n", scene.namespace, "create", "-f", "-", document=pod)

    for name in (pods["foreign"], "no-worker", "no-role"):
        assert "sandboxes and workers of RolloutJobs only" in operator_refused(
            scene, "delete", "pod", name, "--dry-run=server"
        )
    for name in (pods["own"], "worker"):
        done = _run_admin(scene, "--as", OPERATOR, "delete", "pod", name, "--dry-run=server")
        assert done.returncode == 0, done.stderr


def _worker_pod(name: str, job_uid: str, *, owner: str, account: str) -> Json:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "one-with-pods", "uid": owner}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"swe-rollout.dev/job-uid": job_uid},
            "ownerReferences": [reference],
        },
        "spec": {
            "serviceAccountName": account,
            "containers": [{"name": "worker", "image": BUSYBOX, "command": ["sleep", "600"]}],
        },
    }


def worker_job(scene: Scene, **pod: object) -> Json:
    """Build the worker Job that the operator creates."""
    container = {
        "name": "worker",
        "image": BUSYBOX,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec = {
        "serviceAccountName": f"swe-rollout-worker-{scene.uid}",
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True},
        "containers": [container],
        **pod,
    }
    reference = {"apiVersion": API_VERSION, "kind": KIND, "name": "one", "uid": scene.uid}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "one-workers", "ownerReferences": [reference]},
        "spec": {"template": {"spec": spec}},
    }


@pytest.mark.threat(point=25)
@pytest.mark.parametrize(
    "wrong",
    [
        {"serviceAccountName": "ci"},
        {"serviceAccountName": "default"},
        {"serviceAccountName": "swe-rollout-worker-5c3b7ddc-0d2b-4f59-a2f8-77a5d1c1a001"},
        {"hostNetwork": True},
        {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
        {"volumes": [{"name": "v", "secret": {"secretName": "prod"}}]},
        {"initContainers": [EVIL]},
        {"securityContext": {}},
        {"priorityClassName": "system-node-critical"},
    ],
    ids=json.dumps,
)
def test_the_operator_creates_no_job_but_workers(scene: Scene, wrong: Json) -> None:
    assert "denied request" in operator_refused(scene, *DRY, document=worker_job(scene, **wrong))
    done = _run_admin(scene, "--as", OPERATOR, *DRY, document=worker_job(scene))
    assert done.returncode == 0, done.stderr


@pytest.mark.threat(point=25)
@pytest.mark.parametrize(
    ("role", "account_name"),
    [
        ("cluster-admin", "swe-rollout-worker-x"),
        ("edit", "swe-rollout-worker-x"),
        ("swe-rollout-worker", "tenant"),
        ("swe-rollout-worker", "default"),
    ],
)
def test_the_operator_binds_one_role_to_workers_only(
    scene: Scene, role: str, account_name: str
) -> None:
    refusal = operator_refused(
        scene,
        "create",
        "rolebinding",
        "swe-rollout-worker-x",
        f"--clusterrole={role}",
        f"--serviceaccount={scene.namespace}:{account_name}",
        "--dry-run=server",
    )
    assert "forbidden" in refusal
