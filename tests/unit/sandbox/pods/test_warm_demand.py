"""Which pods to keep ready for the requests that are expected."""

from __future__ import annotations

from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods.warm_demand import WarmDemand
from swe_rollout.spec.sandbox import WarmPods
from swe_rollout.types.episode import EpisodeId


def request(sample: int, image: str = "a") -> SandboxRequest:
    return SandboxRequest(EpisodeId("job", "one", sample), Role.AGENT, image, "/")


def test_the_first_requests_come_first_within_both_limits() -> None:
    demand = WarmDemand()
    demand.expect([request(0), request(1), request(2), request(3, "b"), request(4, "c")])

    assert list(demand.missing({}, WarmPods(cap=3, per_image=2))) == ["a", "a", "b"]
    assert list(demand.missing({"a": 1}, WarmPods(cap=3, per_image=2))) == ["a", "b"]
    assert list(demand.missing({"z": 3}, WarmPods(cap=3, per_image=2))) == []


def test_a_request_that_was_made_needs_no_pod_until_it_is_no_longer_expected() -> None:
    demand = WarmDemand()
    demand.expect([request(0)])
    demand.fulfil(request(0))
    assert not demand

    demand.expect([request(0), request(1, "b")])
    assert demand.images == {"b": 1}

    demand.expect([])
    demand.expect([request(0)])
    assert demand.images == {"a": 1}
