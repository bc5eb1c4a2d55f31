"""Parts of the dev cluster that need none: what policies leave open, and watches that break."""

from __future__ import annotations

import http.client
import json
import queue
from collections.abc import Iterator
from typing import NoReturn

import pytest

from rollout_dev.dev_cluster.api import Api, ExpiredError, Json
from rollout_dev.dev_cluster.errors import ScriptError
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
