"""Parts of the dev cluster that need none: policies, status, and what is said before a build."""

from __future__ import annotations

import http.client
import json
import os
import queue
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from checkout import ROOT
from rollout_dev.dev_cluster import binaries
from rollout_dev.dev_cluster.api import Api, ExpiredError, Json
from rollout_dev.dev_cluster.errors import Progress, ScriptError
from rollout_dev.dev_cluster.policy import Mirror, NetworkPolicy, PolicyPod, open_addresses


def policy(selector: Json, *, egress: list[Json] | None = None) -> NetworkPolicy:
    spec: dict[str, Json] = {"podSelector": selector, "policyTypes": ["Ingress", "Egress"]}
    if egress is not None:
        spec["egress"] = egress
    return NetworkPolicy.of({"metadata": {"namespace": "n"}, "spec": spec})


def pod(address: str, *, phase: str = "Running", **labels: str) -> PolicyPod:
    return PolicyPod.of(
        {
            "metadata": {"namespace": "n", "labels": labels},
            "status": {"phase": phase, "podIPs": [{"ip": address}, {"ip": "fd00::1"}]},
        }
    )


def test_policies_close_what_they_select() -> None:
    sandboxes = policy({"matchLabels": {"role": "sandbox"}})
    expression = {"key": "role", "operator": "NotIn", "values": ["worker"]}
    others = policy({"matchExpressions": [expression]})
    allow = policy({}, egress=[{}])
    pods = [
        pod("10.0.0.1", role="sandbox"),
        pod("10.0.0.2", role="worker"),
        pod("10.0.0.3"),
        pod("10.0.0.4", phase="Failed"),
    ]

    assert open_addresses(pods, []) == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
    assert open_addresses(pods, [sandboxes]) == {"10.0.0.2", "10.0.0.3"}
    assert open_addresses(pods, [allow]) == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
    assert open_addresses(pods, [others]) == {"10.0.0.2"}


class EndOfTestError(BaseException):
    """Nobody catches it."""


def test_a_watch_that_breaks_in_any_way_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread would end unseen, and no new pod would ever reach anything."""
    ends: Iterator[BaseException] = iter(
        [
            http.client.IncompleteRead(b""),
            ConnectionResetError(),
            ExpiredError(),
            ScriptError("GET /: 403"),
            json.JSONDecodeError("", "", 0),
            EndOfTestError(),
        ]
    )

    def watch(*_: object) -> NoReturn:
        raise next(ends)

    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(Api, "get", lambda *_: {"metadata": {}, "items": []})
    monkeypatch.setattr(Api, "watch", watch)

    with pytest.raises(EndOfTestError):
        Mirror(Api("", 0, "", ""), "/pods", queue.Queue()).follow()
    assert next(ends, None) is None


def test_a_first_build_says_beforehand_how_long_it_takes_and_a_later_start_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built: list[str] = []

    def ensure(group: binaries.Group, _: Progress) -> Path:
        built.append(group.name)
        group.folder.mkdir(parents=True)
        return group.folder

    monkeypatch.setattr(binaries, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(binaries, "ensure", ensure)

    binaries.ensure_cluster(Progress())
    first, *lines = capsys.readouterr().err.splitlines()
    binaries.ensure_cluster(Progress())

    assert "up to 30" in first
    assert built == [group.name for group in binaries.CLUSTER]
    assert [line.split()[1:] for line in lines] == [
        [f"{name}:", str(number), "of", "4"] for number, name in enumerate(built, 1)
    ]
    assert capsys.readouterr().err == ""


def test_a_reader_of_status_that_leaves_ends_it_without_a_trace() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [ROOT / "scripts" / "dev-cluster", "status"],
            stdout=write,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(write)

    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")
