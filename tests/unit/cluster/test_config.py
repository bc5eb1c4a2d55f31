"""Finding the cluster: kubeconfig files, contexts, and errors when there is none."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import certifi
import pytest
import yaml

from swe_rollout.cluster import config
from swe_rollout.cluster.config import load_access
from swe_rollout.errors import PrerequisiteError, UsageError


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [
            {"name": "one", "cluster": {"server": "http://one.example:1/"}},
            {"name": "two", "cluster": {"server": "http://two.example:2"}},
        ],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "one", "user": "me"}},
            {"name": "two", "context": {"cluster": "two", "user": "me", "namespace": "rl"}},
        ],
    }
    path.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.mark.usefixtures("kubeconfig")
async def test_the_current_context_is_used_unless_one_is_named() -> None:
    one, two = await load_access(), await load_access("two")
    assert (one.server, one.namespace) == ("http://one.example:1", "default")
    assert (two.server, two.namespace) == ("http://two.example:2", "rl")
    assert await two.credentials.headers() == {"Authorization": "Bearer secret"}


@pytest.mark.usefixtures("kubeconfig")
async def test_an_unknown_context_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="one, two"):
        await load_access("three")


def test_a_file_that_is_no_kubeconfig_is_reported_by_name(kubeconfig: Path) -> None:
    kubeconfig.write_text("clusters: [")
    with pytest.raises(PrerequisiteError, match=str(kubeconfig)):
        asyncio.run(load_access())


def test_a_missing_certificate_is_reported(kubeconfig: Path) -> None:
    text = kubeconfig.read_text().replace("http://one.example:1/", "https://one.example:1/")
    kubeconfig.write_text(text.replace("token: secret", "client-certificate: nowhere.pem"))
    with pytest.raises(PrerequisiteError, match=r"nowhere\.pem"):
        asyncio.run(load_access())


async def test_a_named_file_that_does_not_exist_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    with pytest.raises(PrerequisiteError, match="nothing"):
        await load_access()


async def test_outside_a_cluster_without_a_file_the_fix_is_local_sandboxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(PrerequisiteError) as caught:
        await load_access()
    assert "local" in caught.value.fix


@pytest.mark.usefixtures("kubeconfig")
async def test_a_proxy_is_used_unless_the_server_is_excepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "two.example")
    assert (await load_access("one")).proxy == "http://proxy.example:3128"
    assert (await load_access("two")).proxy is None


@pytest.mark.threat(point=27)
def test_clusters_are_told_apart_by_their_authorities(kubeconfig: Path, tmp_path: Path) -> None:
    end = "-----END CERTIFICATE-----\n"
    authorities = [each + end for each in certifi.contents().split(end)[:2]]
    content = yaml.safe_load(kubeconfig.read_text())
    for each in content["clusters"]:
        each["cluster"] = {
            "server": f"https://{each['name']}.example",
            "certificate-authority": str(tmp_path / f"{each['name']}.pem"),
        }
        (tmp_path / f"{each['name']}.pem").write_text(authorities[0])
    kubeconfig.write_text(yaml.safe_dump(content))

    def fingerprint(context: str) -> str:
        return asyncio.run(load_access(context)).fingerprint

    one, same = fingerprint("one"), fingerprint("two")
    (tmp_path / "two.pem").write_text(authorities[1])

    assert one == same != fingerprint("two")
    assert len(one) == 12


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a pod; return the folder of its account."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("first\n")
    (folder / "namespace").write_text("rl\n")
    (folder / "ca.crt").write_text(
        certifi.contents().split("-----END")[0] + "-----END CERTIFICATE-----\n"
    )
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.setattr(config, "_ACCOUNT", folder)
    return folder


async def test_a_pod_uses_its_account_and_the_token_that_is_renewed(pod: Path) -> None:
    found = await load_access()
    assert (found.server, found.namespace) == ("https://10.96.0.1:6443", "rl")
    headers = await found.credentials.headers()
    assert headers == {"Authorization": "Bearer first"}
    assert found.tls is not None
    assert len(found.tls.get_ca_certs()) == 1

    (pod / "token").write_text("second")

    assert await found.credentials.renewed(headers)
    assert await found.credentials.headers() == {"Authorization": "Bearer second"}


@pytest.mark.usefixtures("pod")
async def test_a_pod_of_a_cluster_with_ipv6_addresses_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert (await load_access()).server == "https://[fd00::1]:6443"


@pytest.mark.usefixtures("pod")
async def test_a_pod_uses_the_proxy_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "other.example")
    assert (await load_access()).proxy == "http://proxy.example:3128"
    monkeypatch.setenv("no_proxy", "10.96.0.1")
    assert (await load_access()).proxy is None


@pytest.mark.parametrize("missing", ["token", "ca.crt", "namespace"])
async def test_a_pod_without_an_account_is_told_how_to_get_one(pod: Path, missing: str) -> None:
    (pod / missing).unlink()
    with pytest.raises(PrerequisiteError) as caught:
        await load_access()
    assert "automountServiceAccountToken" in caught.value.fix


@pytest.mark.usefixtures("pod")
def test_a_pod_does_not_import_the_official_client() -> None:
    program = (
        "import sys, swe_rollout.worker.cluster_worker\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'kubernetes'])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert said.stdout.strip() == b"[]"
