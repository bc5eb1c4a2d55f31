"""The command line of every process of the cluster, and which ones wait for the API server."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rollout_dev.dev_cluster import pki
from rollout_dev.dev_cluster.binaries import CONTAINERD, COREDNS, KUBE, RUNTIME
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.network import (
    API_PORT,
    NODE_ADDRESS,
    NODE_NAME,
    POD_RANGE,
    SERVICE_RANGE,
)

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
"""Inside the cluster's mount namespace, whose /run is its own."""
PAUSE_IMAGE = "dev-cluster.local/pause:1"
POD_BRIDGE = "kpod0"


def write_settings(checkout: Checkout) -> None:
    """Write all files to the state folder; components get their paths."""
    state = checkout.state
    for name, content in (
        ("containerd.toml", _containerd(state)),
        ("cni.d/10-bridge.conflist", _cni()),
        ("kubelet.yaml", _kubelet_settings(checkout)),
        ("Corefile", _corefile(checkout)),
        ("audit.yaml", _AUDIT),
        # The kubelet requires one; no server outside the cluster is reachable.
        ("resolv.conf", f"nameserver {NODE_ADDRESS}\n"),
    ):
        path = state / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def _containerd(state: Path) -> str:
    # restrict_oom_score_adj: lowering the score needs CAP_SYS_RESOURCE, which VMs may not grant.
    # `opt`: the default is a folder in the machine's root.
    return f"""\
version = 3
root = "{state}/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/opt"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE_IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni", "/opt/cni/bin"]
    conf_dir = "{state}/cni.d"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "runc"
        SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
"""


def _cni() -> str:
    # Address leases are in /run, so none is left after a crash.
    return f"""\
{{"cniVersion": "1.0.0", "name": "dev", "plugins": [
  {{"type": "bridge", "bridge": "{POD_BRIDGE}", "isGateway": true, "ipMasq": false,
   "hairpinMode": true,
   "ipam": {{"type": "host-local", "dataDir": "/run/cni", "routes": [{{"dst": "0.0.0.0/0"}}],
            "ranges": [[{{"subnet": "{POD_RANGE}"}}]]}}}}]}}
"""


def _kubelet_settings(checkout: Checkout) -> str:
    state, pki = checkout.state, checkout.pki
    # failCgroupV1: kubelets of 1.35 and later refuse v1 by default.
    # oomScoreAdj: see restrict_oom_score_adj above.
    # crashLoopBackOff: tests kill containers again and again; the usual pause grows to 5 minutes.
    return f"""\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {NODE_ADDRESS}
healthzBindAddress: 127.0.0.1
tlsCertFile: {pki}/kubelet.crt
tlsPrivateKeyFile: {pki}/kubelet.key
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: {pki}/ca.crt}}
authorization: {{mode: Webhook}}
containerRuntimeEndpoint: unix://{CONTAINERD_SOCKET}
cgroupDriver: cgroupfs
cgroupRoot: {checkout.cgroup}
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
clusterDNS: [{NODE_ADDRESS}]
clusterDomain: cluster.local
resolvConf: {state}/resolv.conf
podLogsDir: {state}/pod-logs
volumePluginDir: {state}/volume-plugins
maxPods: 250
podPidsLimit: 4096
registryPullQPS: 0
eventRecordQPS: 0
kubeAPIQPS: 100
kubeAPIBurst: 200
crashLoopBackOff: {{maxContainerRestartPeriod: 1s}}
evictionHard: {{memory.available: 100Mi, nodefs.available: 2%, imagefs.available: 2%}}
imageGCHighThresholdPercent: 99
imageGCLowThresholdPercent: 98
"""


def _corefile(checkout: Checkout) -> str:
    return f"""\
.:53 {{
  bind {NODE_ADDRESS}
  errors
  kubernetes cluster.local {{
    kubeconfig {checkout.pki / pki.COREDNS.file} dev
  }}
  cache 5
}}
"""


_AUDIT = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
"""


_ETCD = "http://127.0.0.1:2379"


@dataclass(frozen=True, slots=True)
class Component:
    """A process that the cluster keeps running."""

    name: str
    command: tuple[str, ...]
    socket: int | None = None
    """A socket to inherit as descriptor 3."""


def foundation(checkout: Checkout, *, listener: int) -> tuple[Component, ...]:
    """Return the API server's processes, and containerd."""
    containerd = CONTAINERD.folder / "containerd"
    relay = (str(RUNTIME.folder / "relay"), f"{NODE_ADDRESS}:{API_PORT}")
    return (
        Component("containerd", (str(containerd), "-c", f"{checkout.state}/containerd.toml")),
        Component("etcd", _etcd(checkout)),
        Component("kube-apiserver", _apiserver(checkout)),
        Component("relay", relay, socket=listener),
    )


def clients(checkout: Checkout) -> tuple[Component, ...]:
    """Return the clients of the API server; started earlier, they would only log errors."""
    return (
        Component("kube-controller-manager", _controller_manager(checkout)),
        Component("kube-scheduler", _scheduler(checkout)),
        Component("kube-proxy", _proxy(checkout)),
        Component("kubelet", _kubelet(checkout)),
        Component(
            "coredns",
            (str(COREDNS.folder / "coredns"), "-conf", f"{checkout.state}/Corefile"),
        ),
        Component("policy", (sys.executable, "-P", "-m", "rollout_dev.dev_cluster.policy")),
    )


def _kube(name: str, *flags: str) -> tuple[str, ...]:
    return (str(KUBE.folder / "kube"), name, *flags)


def _etcd(checkout: Checkout) -> tuple[str, ...]:
    return _kube(
        "etcd",
        f"--data-dir={checkout.state}/etcd",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        # A crash of the machine loses only what can be recreated; every write is faster.
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def _apiserver(checkout: Checkout) -> tuple[str, ...]:
    keys = checkout.pki
    return _kube(
        "kube-apiserver",
        f"--etcd-servers={_ETCD}",
        f"--bind-address={NODE_ADDRESS}",
        f"--advertise-address={NODE_ADDRESS}",
        f"--secure-port={API_PORT}",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        f"--client-ca-file={keys}/ca.crt",
        f"--token-auth-file={keys}/tokens.csv",
        "--authorization-mode=Node,RBAC",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--service-account-key-file={keys}/service-account.pub",
        f"--service-account-signing-key-file={keys}/service-account.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--kubelet-client-certificate={keys}/kubelet-client.crt",
        f"--kubelet-client-key={keys}/kubelet-client.key",
        f"--kubelet-certificate-authority={keys}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        f"--audit-policy-file={checkout.state}/audit.yaml",
        f"--audit-log-path={checkout.logs}/audit.log",
        "--audit-log-maxsize=100",
        "--audit-log-maxbackup=2",
    )


def _kubeconfig(checkout: Checkout, user: pki.User) -> str:
    return f"--kubeconfig={checkout.pki / user.file}"


def _controller_manager(checkout: Checkout) -> tuple[str, ...]:
    return _kube(
        "kube-controller-manager",
        _kubeconfig(checkout, pki.CONTROLLER_MANAGER),
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={checkout.pki}/service-account.key",
        f"--root-ca-file={checkout.pki}/ca.crt",
    )


def _scheduler(checkout: Checkout) -> tuple[str, ...]:
    config = _kubeconfig(checkout, pki.SCHEDULER)
    return _kube("kube-scheduler", config, "--bind-address=127.0.0.1", "--leader-elect=false")


def _proxy(checkout: Checkout) -> tuple[str, ...]:
    return _kube(
        "kube-proxy",
        _kubeconfig(checkout, pki.PROXY),
        "--proxy-mode=nftables",
        f"--cluster-cidr={POD_RANGE}",
        f"--hostname-override={NODE_NAME}",
        # The limit belongs to the whole machine: leave it unchanged.
        "--conntrack-max-per-core=0",
        "--conntrack-min=0",
    )


def _kubelet(checkout: Checkout) -> tuple[str, ...]:
    return _kube(
        "kubelet",
        _kubeconfig(checkout, pki.KUBELET),
        f"--config={checkout.state}/kubelet.yaml",
        f"--root-dir={checkout.state}/kubelet",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={NODE_ADDRESS}",
    )


def search_path() -> str:
    """Return PATH for the components: containerd finds its shim, runc and CNI's iptables there."""
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return f"{CONTAINERD.folder}:{system}"


def python_path() -> str:
    """Return PYTHONPATH for the components in Python: this checkout, whichever is installed."""
    return str(Path(__file__).resolve().parents[2])
