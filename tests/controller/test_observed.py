"""ObservedJob: the spec that the operator acts on, or why it does not."""

from __future__ import annotations

import pytest

from controller.builders import job
from rollout_operator.__main__ import main
from rollout_operator.observed import ObservedJob, UserCode

FILES: dict[str, object] = {"extensions": [{"name": "my_tools.py", "sha256": "0" * 64}]}
BODY: dict[str, object] = {
    "dataset": {"releasePairs": {}},
    "policy": {"scripted": {}},
    "sandbox": {"pod": {}},
    "store": {"uri": "s3://rollouts"},
}
METADATA = {"name": "job", "namespace": "default", "uid": "1", "generation": 1}


def test_files_of_user_code_are_allowed_by_default() -> None:
    assert job(spec=FILES).problems == ""


def test_an_operator_may_forbid_files_of_user_code() -> None:
    found = {"metadata": METADATA, "spec": BODY | FILES, "status": {}}

    refused = ObservedJob.of(found, UserCode.FORBID)
    other = {**found, "metadata": {**METADATA, "generation": 2}}
    accepted = ObservedJob.of({**found, "spec": BODY}, UserCode.FORBID)

    assert refused.spec is None
    assert "forbids user code" in refused.problems
    assert "entry point" in refused.problems
    assert accepted.problems == ""
    assert "forbids" in accepted.updated(other).problems


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agent", {"use": "os:x"}),
        ("agent", {"toolFormat": "my:format"}),
        ("agent", {"tools": ["bash", {"use": "my:tool"}]}),
        ("grading", {"reward": [{"use": "my:term"}]}),
        ("grading", {"logParser": {"use": "my:parser"}}),
        ("dataset", {"source": {"use": "my:source"}}),
        ("policy", {"engine": {"use": "my:Engine"}}),
        ("sandbox", {"backend": {"use": "my:Backend"}}),
        ("workers", {"image": "registry.example/mine:1"}),
    ],
)
def test_every_way_to_name_a_module_is_forbidden(field: str, value: dict[str, object]) -> None:
    found = {"metadata": METADATA, "spec": BODY | {field: value}, "status": {}}

    assert "forbids user code" in ObservedJob.of(found, UserCode.FORBID).problems
    assert ObservedJob.of(found).problems == ""


def test_the_operator_takes_no_other_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--user-code", "maybe"])

    assert "invalid" in capsys.readouterr().err


def test_a_field_of_a_newer_definition_stops_the_job_and_is_named() -> None:
    newer = {"metadata": METADATA, "spec": {**BODY, "ofTomorrow": {"a": 1}}, "status": {}}

    found = ObservedJob.of(newer)

    assert found.spec is None
    assert "spec.ofTomorrow" in found.problems
