"""Addresses that no engine has, and addresses with secrets in them."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from swe_rollout.spec.addresses import (
    engine_address,
    is_worker,
    object_address,
    refused_address,
)
from swe_rollout.spec.policy import SglangPolicy
from unit.spec.spec_parts import GOOD, problems


@pytest.mark.parametrize(
    "url",
    [
        "http://sglang:30000",
        "http://sglang:30000/",
        "https://engines.example/team-a",
        "http://10.0.0.7:30000",
        "http://[2001:db8::7]:30000",
        "http://localhost:30000",
        "http://kubernetes-engine:30000",
        "http://metadata-server.team:30000",
    ],
)
def test_an_engines_address_is_kept(url: str) -> None:
    assert engine_address(url) == url.rstrip("/")


@pytest.mark.threat(point=26)
@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("http://169.254.169.254", "link-local"),
        ("http://169.254.169.254:80/latest", "link-local"),
        ("http://2852039166", "link-local"),
        ("http://0xA9FEA9FE", "link-local"),
        ("http://0251.0376.0251.0376", "link-local"),
        ("http://169.16689662", "link-local"),
        ("http://[::ffff:169.254.169.254]", "link-local"),
        ("http://[::ffff:a9fe:a9fe]", "link-local"),
        ("http://[64:ff9b::a9fe:a9fe]", "link-local"),
        ("http://[2002:a9fe:a9fe::]", "link-local"),
        ("http://[fe80::1%25eth0]:30000", "link-local"),
        ("http://[fd00:ec2::254]", "metadata service"),
        ("http://[fd00:ec2::23]", "metadata service"),
        ("http://[fd20:ce::254]", "metadata service"),
        ("http://[fd00:c1::a9fe:a9fe]", "metadata service"),
        ("http://[fd00:42::42]", "metadata service"),
        ("http://[::169.254.169.254]", "link-local"),
        ("http://[::a9fe:a9fe]", "link-local"),
        ("http://[64:ff9b:1::a9fe:a9fe]", "link-local"),
        ("http://[64:ff9b::100.100.100.200]", "metadata service"),
        ("http://100.100.100.200", "metadata service"),
        ("http://Metadata.Google.Internal.", "metadata service"),
        ("http://metadata/computeMetadata", "metadata service"),
        ("https://kubernetes", "API server"),
        ("https://kubernetes.default.svc", "API server"),
        ("https://kubernetes.default.svc.cluster.local.:443", "API server"),
        ("http://224.0.0.1", "multicast"),
        ("http://255.255.255.255", "reserved"),
    ],
)
def test_what_is_no_engine_is_refused_however_it_is_written(url: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        engine_address(url)


@pytest.mark.threat(point=26)
@pytest.mark.parametrize(
    "url",
    [
        *("sglang:30000", "ftp://sglang", "http://", "http:///x", "http://h:99999", "http://[::1"),
        # Nothing swallows the path of a request.
        *("h\n", "http://h/?x=", "http://h/#", "http://h\\@other"),
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"http|without credentials|root of a server"):
        engine_address(url)


@pytest.mark.threat(point=26)
@pytest.mark.parametrize(
    ("ip", "port", "outside", "in_pod"),
    [
        ("10.0.0.7", 30000, "", ""),
        ("127.0.0.1", 30000, "", "the worker's own pod"),
        ("::1", 30000, "", "the worker's own pod"),
        ("::ffff:127.0.0.1", 30000, "", "the worker's own pod"),
        ("0.0.0.0", 30000, "", "the worker's own pod"),  # noqa: S104
        ("10.96.0.1", 443, "", "the cluster's API server"),
        ("::ffff:10.96.0.1", 443, "", "the cluster's API server"),
        ("10.0.0.7", 10250, "", "a port of the cluster's own components"),
        ("168.63.129.16", 80, "a cloud's metadata service", "a cloud's metadata service"),
    ],
)
def test_a_resolved_address_is_judged_by_whose_process_it_is(
    monkeypatch: pytest.MonkeyPatch, ip: str, port: int, outside: str, in_pod: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    assert refused_address(ip, port) == outside
    token = is_worker.set(True)
    try:
        assert refused_address(ip, port) == in_pod
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
        assert refused_address(ip, port) == outside
    finally:
        is_worker.reset(token)


PASSWORDS = [
    ("policy.sglang.url", "http://me:hunter2@sglang:30000"),
    ("policy.sglang.url", "http://me:hun/ter2@sglang:30000"),
    ("policy.sglang.url", "http://sglang:30000/?key=hunter2"),
    ("store.uri", "s3://AKIA:hunter2@bucket/runs"),
    ("store.uri", "s3://AKIA:hun/ter2@bucket/runs"),
    ("store.uri", "s3://bucket/runs?secret=hunter2"),
    ("store.uri", "az://me:hunter2@container"),
    ("dataset.swebench.uri", "s3://AKIA:hunter2@bucket/rows.jsonl"),
]


@pytest.mark.threat(point=9)
@pytest.mark.parametrize(("field", "uri"), PASSWORDS)
def test_credentials_in_an_address_are_refused_and_not_repeated(field: str, uri: str) -> None:
    others = ["spec.policy={sglang: {url: 'http://sglang:30000'}}"]
    if field.startswith("dataset"):
        others.append("spec.dataset.releasePairs=null")
    said = "\n".join(problems(GOOD, *others, f"spec.{field}={json.dumps(uri)}"))
    assert f"spec.{field}" in said
    for word in ("hunter2", "hun/ter2", "ter2", "AKIA"):
        assert word not in said


@pytest.mark.threat(point=9)
def test_a_model_made_in_python_does_not_repeat_them_either() -> None:
    with pytest.raises(ValidationError) as caught:
        SglangPolicy(url="http://me:hunter2@sglang:30000")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("uri", ["file:///data/a@b", "rows.jsonl", "s3://bucket/prefix"])
def test_an_address_without_credentials_is_kept(uri: str) -> None:
    assert object_address(uri) == uri
