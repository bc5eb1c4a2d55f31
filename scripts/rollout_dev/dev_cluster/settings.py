"""Write the configuration of containerd, CNI, the kubelet, CoreDNS and the audit log."""

from __future__ import annotations

from pathlib import Path

from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.network import NODE_ADDRESS, POD_RANGE
from rollout_dev.dev_cluster.pki import COREDNS

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
"""Inside the cluster's mount namespace, whose /run is its own."""
PAUSE_IMAGE = "dev-cluster.local/pause:1"
POD_BRIDGE = "kpod0"


def write(checkout: Checkout) -> None:
    """Write all files to the state folder; components get their paths."""
    state = checkout.state
    for name, content in (
        ("containerd.toml", _containerd(state)),
        ("cni.d/10-bridge.conflist", _cni()),
        ("kubelet.yaml", _kubelet(checkout)),
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
    # Address leases are in /run: none is left over after a crash.
    return f"""\
{{"cniVersion": "1.0.0", "name": "dev", "plugins": [
  {{"type": "bridge", "bridge": "{POD_BRIDGE}", "isGateway": true, "ipMasq": false,
   "hairpinMode": true,
   "ipam": {{"type": "host-local", "dataDir": "/run/cni", "routes": [{{"dst": "0.0.0.0/0"}}],
            "ranges": [[{{"subnet": "{POD_RANGE}"}}]]}}}}]}}
"""


def _kubelet(checkout: Checkout) -> str:
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
    kubeconfig {checkout.pki / COREDNS.file} dev
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
