"""The development cluster, the S3 server and the images, by their commands.

Aspects: `up` and `load-image` change nothing the second time; pods run loaded images; a deny-all
policy denies pod, node and API server, and nothing else does; the ways in and out of the cluster's
network; a second checkout beside the first, whose components come back after a crash, and of which
`down` leaves nothing.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import http.server
import json
import os
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import kubernetes
import kubernetes.stream
import kubernetes.utils
import pytest
import urllib3
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

from checkout import ROOT
from cluster.second_checkout import copy_checkout, script_environment
from rollout_dev.dev_cluster.checkout import Checkout

pytestmark = [
    # The kubernetes client leaves the sockets of its exec calls to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NODE_ADDRESS = "10.254.254.1"
BASE = "swe-rollout/sandbox-base:local"
BUSYBOX = "swe-rollout/busybox:local"
PROBE = """
import socket, sys
for address in sys.argv[1:]:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), 2).close()
        print(address, "open")
    except OSError:
        print(address, "closed")
"""


def run(root: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(root / "scripts" / script), *arguments]
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=1200,
        env=script_environment(root),
    )


def succeed(root: Path, script: str, *arguments: str) -> str:
    done = run(root, script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def eventually(check: Callable[[], bool], *, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


@dataclass(frozen=True)
class Cluster:
    """A running cluster, and a namespace of it for one test."""

    root: Path
    namespace: str
    client: kubernetes.client.ApiClient

    @property
    def core(self) -> kubernetes.client.CoreV1Api:
        return kubernetes.client.CoreV1Api(self.client)

    def create(self, **body: object) -> None:
        make = kubernetes.utils.create_from_dict
        make(self.client, body, namespace=self.namespace)  # type: ignore[no-untyped-call]

    def components(self) -> dict[str, int | None]:
        status = json.loads(succeed(self.root, "dev-cluster", "status", "-o", "json"))
        found: dict[str, int | None] = status["components"]
        return found

    def start_pod(self, name: str, image: str, *command: str) -> str:
        """A running pod's address."""
        container = {
            "name": "main",
            "image": image,
            "imagePullPolicy": "Never",
            "command": list(command),
        }
        self.create(
            apiVersion="v1",
            kind="Pod",
            metadata={"name": name, "labels": {"app": name}},
            spec={"terminationGracePeriodSeconds": 1, "containers": [container]},
        )
        address = ""

        def ready() -> bool:
            nonlocal address
            status = self.core.read_namespaced_pod(name, self.namespace).status
            assert status is not None
            address = status.pod_ip or ""
            return bool(status.container_statuses and status.container_statuses[0].ready)

        eventually(ready)
        return address

    def exec(self, pod: str, *command: str) -> str:
        channel = kubernetes.stream.stream(
            self.core.connect_get_namespaced_pod_exec,
            pod,
            self.namespace,
            command=list(command),
            stdout=True,
            stderr=True,
            _preload_content=False,
        )
        channel.run_forever(timeout=30)
        output = str(channel.read_all())
        channel.close()
        return output

    def reaches(self, pod: str, *addresses: str) -> dict[str, bool]:
        """Which of these addresses a pod can connect to."""
        lines = self.exec(pod, "python3", "-c", PROBE, *addresses).split("\n")
        return {line.split()[0]: line.endswith("open") for line in lines if line}


@contextlib.contextmanager
def namespace_in(root: Path) -> Iterator[Cluster]:
    config = root / ".dev-cluster" / "kubeconfig"
    client = kubernetes.config.new_client_from_config(str(config))  # type: ignore[no-untyped-call]
    cluster = Cluster(root, f"test-{uuid.uuid4().hex[:8]}", client)
    cluster.create(apiVersion="v1", kind="Namespace", metadata={"name": cluster.namespace})
    eventually(lambda: _has_default_account(cluster))
    try:
        yield cluster
    finally:
        with contextlib.suppress(urllib3.exceptions.HTTPError):  # some tests end the cluster
            cluster.core.delete_namespace(cluster.namespace)
        client.close()
        client.rest_client.pool_manager.clear()
        gc.collect()  # now, while the warnings about its sockets are still ignored


def _has_default_account(cluster: Cluster) -> bool:
    return bool(cluster.core.list_namespaced_service_account(cluster.namespace).items)


@pytest.fixture(scope="module")
def shared_root() -> Path:
    if os.geteuid() != 0:
        pytest.skip("needs root: sudo -E make test-cluster")
    if run(ROOT, "dev-cluster", "status").returncode != 0:
        pytest.skip("the dev cluster is not up: scripts/dev-cluster up")
    succeed(ROOT, "build-images", "base", "busybox", "--load")
    return ROOT


@pytest.fixture
def cluster(shared_root: Path) -> Iterator[Cluster]:
    with namespace_in(shared_root) as found:
        yield found


@pytest.fixture(scope="module")
def second_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("needs root: sudo -E make test-cluster")
    root = tmp_path_factory.mktemp("second")
    copy_checkout(root)
    yield root
    run(root, "dev-s3", "down", "--wipe")
    run(root, "dev-cluster", "down", "--wipe")


@pytest.mark.cluster
def test_up_again_changes_nothing(shared_root: Path) -> None:
    before = succeed(shared_root, "dev-cluster", "status", "-o", "json")

    printed = succeed(shared_root, "dev-cluster", "up", "--native")

    assert printed == f"export KUBECONFIG={shared_root}/.dev-cluster/kubeconfig\n"
    assert succeed(shared_root, "dev-cluster", "status", "-o", "json") == before
    status = json.loads(before)
    assert (status["state"], status["kind"]) == ("up", "native")
    assert all(status["components"].values())


@pytest.mark.cluster
def test_a_pod_runs_a_loaded_image(cluster: Cluster) -> None:
    archive = succeed(cluster.root, "build-images", "busybox").strip()

    again = run(cluster.root, "dev-cluster", "load-image", archive)
    cluster.start_pod("box", BUSYBOX, "sleep", "1000")

    assert "already loaded" in again.stderr
    assert cluster.exec("box", "sh", "-c", "echo $((6 * 7)); ls -ld /tmp").startswith(
        "42\ndrwxrwxrwt"
    )


@pytest.mark.cluster
def test_what_is_no_archive_is_refused(shared_root: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_text("no tar")

    done = run(shared_root, "dev-cluster", "load-image", str(tmp_path / "x.tar"))

    assert done.returncode == 1
    assert "not a docker-archive" in done.stderr
    assert "fix:" in done.stderr


def deny(cluster: Cluster, **labels: str) -> None:
    cluster.create(
        apiVersion="networking.k8s.io/v1",
        kind="NetworkPolicy",
        metadata={"name": "deny"},
        spec={"podSelector": {"matchLabels": labels}, "policyTypes": ["Egress"]},
    )


@pytest.mark.cluster
def test_a_policy_denies_every_way_out(cluster: Cluster) -> None:
    serve = ("python3", "-m", "http.server", "8000")
    server = cluster.start_pod("server", BASE, *serve)
    denied = cluster.start_pod("denied", BASE, *serve)
    places = (f"{server}:8000", f"{NODE_ADDRESS}:6443", "10.96.0.1:443")
    eventually(lambda: all(cluster.reaches("denied", *places).values()))
    network = kubernetes.client.NetworkingV1Api(cluster.client)

    deny(cluster, app="denied")
    eventually(lambda: not cluster.reaches("denied", places[0])[places[0]])

    assert not any(cluster.reaches("denied", *places).values())
    # It can still answer, as a kubelet's probe needs; and the other pod is not concerned.
    assert cluster.reaches("server", f"{denied}:8000", *places[1:]) == {
        f"{denied}:8000": True,
        places[1]: True,
        places[2]: True,
    }
    network.delete_namespaced_network_policy("deny", cluster.namespace)
    eventually(lambda: all(cluster.reaches("denied", *places).values()))


@pytest.mark.cluster
def test_a_new_pod_is_denied_from_the_start(cluster: Cluster) -> None:
    deny(cluster, app="eager")
    attempt = f"nc -w 1 {NODE_ADDRESS} 6443 </dev/null && echo reached"
    script = f"for n in 1 2 3 4; do {attempt}; done >/root/out 2>&1; touch /root/done; sleep 1000"

    for name in ("eager", "control"):
        cluster.start_pod(name, BUSYBOX, "sh", "-c", script)
    for name in ("eager", "control"):
        eventually(functools.partial(_done, cluster, name))

    assert "reached" not in cluster.exec("eager", "cat", "/root/out")
    assert "reached" in cluster.exec("control", "cat", "/root/out")


@pytest.mark.cluster
def test_a_command_runs_in_the_clusters_network(shared_root: Path) -> None:
    done = run(
        *(shared_root, "dev-cluster", "exec", "--"),
        *("sh", "-c", 'ip -br addr show knode0; cat "$KUBECONFIG" | grep -c 6443; exit 7'),
    )

    assert done.returncode == 7
    assert NODE_ADDRESS in done.stdout
    assert done.stdout.endswith("1\n")


@pytest.mark.cluster
def test_pods_reach_a_forwarded_port(cluster: Cluster) -> None:
    handler = http.server.SimpleHTTPRequestHandler
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        cluster.start_pod("client", BASE, "sleep", "1000")

        address = succeed(cluster.root, "dev-cluster", "forward", str(port)).strip()
        again = succeed(cluster.root, "dev-cluster", "forward", str(port)).strip()
        eventually(lambda: cluster.reaches("client", address)[address])
        server.shutdown()

    assert address == again == f"{NODE_ADDRESS}:{port}"


@pytest.mark.slow
@pytest.mark.cluster
def test_a_second_checkout_leaves_nothing(shared_root: Path, second_root: Path) -> None:
    succeed(second_root, "dev-cluster", "up", "--native")
    kubeconfig = ("--kubeconfig", str(Checkout(second_root).kubeconfig))
    # Its exit code says how fast it was. It loads the image, of which pods start from here on.
    run(second_root, "bench", "sandbox_start", "--quick", "--image", BUSYBOX, *kubeconfig)
    with namespace_in(second_root) as second, namespace_in(shared_root) as first:
        for one in (first, second):
            one.start_pod("box", BUSYBOX, "sleep", "1000")
        _crash(second, "kube-scheduler")
        _crash(second, "kube-apiserver")
        eventually(lambda: _survives(lambda: second.exec("box", "echo", "alive") == "alive\n"))
        status = json.loads(succeed(second_root, "dev-cluster", "status", "-o", "json"))
        inside = _pid_namespace(status["components"]["kubelet"])
        assert _processes_in(inside)

        down = succeed(second_root, "dev-cluster", "down")
        again = succeed(second_root, "dev-cluster", "down")

        assert down == again == ""
        assert first.exec("box", "echo", "alive") == "alive\n"
    assert not _processes_in(inside)
    assert str(second_root) not in Path("/proc/mounts").read_text()
    name = Checkout(second_root).cgroup.strip("/")
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{name}"))
    with socket.socket() as client:
        port = int(status["server"].rpartition(":")[2])
        assert client.connect_ex(("127.0.0.1", port)) != 0
    assert run(second_root, "dev-cluster", "status").returncode == 1


@pytest.mark.slow
@pytest.mark.cluster
def test_a_cluster_comes_back_after_a_crash(second_root: Path) -> None:
    succeed(second_root, "dev-cluster", "up", "--native")
    with namespace_in(second_root) as second:
        status = json.loads(succeed(second_root, "dev-cluster", "status", "-o", "json"))
        kubelet = status["components"]["kubelet"]
        first_process = int(Path(f"/proc/{kubelet}/stat").read_text().split()[3])

        os.kill(first_process, signal.SIGKILL)
        eventually(lambda: run(second_root, "dev-cluster", "status").returncode == 1)
        succeed(second_root, "dev-cluster", "up", "--native")

        # What the API server had stored is still there.
        kept = second.core.list_namespace(field_selector=f"metadata.name={second.namespace}")
        assert len(kept.items) == 1
    succeed(second_root, "dev-cluster", "down", "--wipe")
    assert not (second_root / ".dev-cluster").exists()


@pytest.mark.cluster
def test_the_s3_server_starts_once_and_ends(second_root: Path) -> None:
    first = succeed(second_root, "dev-s3", "up", "--bucket", "rollouts")
    exports = dict(
        line.removeprefix("export ").split("=", 1) for line in first.strip().splitlines()
    )
    bucket = S3Store(
        "rollouts",
        endpoint=exports["AWS_ENDPOINT_URL"],
        region=exports["AWS_REGION"],
        access_key_id=exports["AWS_ACCESS_KEY_ID"],
        secret_access_key=exports["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
    )

    bucket.put("a b", b"first", mode="create")
    with pytest.raises(AlreadyExistsError):
        bucket.put("a b", b"second", mode="create")
    assert succeed(second_root, "dev-s3", "up") == first
    assert succeed(second_root, "dev-s3", "env") == first
    state = second_root / ".dev-s3" / "server.json"
    assert state.stat().st_mode & 0o777 == 0o600

    succeed(second_root, "dev-s3", "down")
    succeed(second_root, "dev-s3", "down")

    assert run(second_root, "dev-s3", "status").returncode == 1
    assert "scripts/dev-s3 up" in run(second_root, "dev-s3", "env").stderr
    assert succeed(second_root, "dev-s3", "up") == first
    assert bucket.get("a b").bytes().to_bytes() == b"first"
    succeed(second_root, "dev-s3", "down", "--wipe")


def _done(cluster: Cluster, pod: str) -> bool:
    return "done" in cluster.exec(pod, "ls", "/root")


def _crash(cluster: Cluster, component: str) -> None:
    before = cluster.components()[component]
    assert before is not None
    os.kill(before, signal.SIGKILL)
    eventually(lambda: cluster.components()[component] not in (None, before))


def _survives(check: Callable[[], bool]) -> bool:
    """The check's answer; no while the API server is not back yet."""
    try:
        return check()
    except Exception:  # noqa: BLE001 - the client has a dozen ways to say so
        return False


def _pid_namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())


def _processes_in(namespace: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if _pid_namespace(int(entry.name)) == namespace:
                    found.append(int(entry.name))
    return found
