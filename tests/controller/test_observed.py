"""ObservedJob: the spec that the operator acts on, or why it does not."""

from __future__ import annotations

import pytest

from controller.builders import SPEC, job
from rollout_operator.__main__ import main
from rollout_operator.observed import ObservedJob, UserCode
from rollout_operator.sightings import Sightings, Stage

FILES: dict[str, object] = {"extensions": [{"name": "my_tools.py", "sha256": "0" * 64}]}
METADATA = {"name": "job", "namespace": "default", "uid": "1", "generation": 1}


def test_files_of_user_code_are_allowed_by_default() -> None:
    assert job(spec=FILES).problems == ""


def test_an_operator_may_forbid_files_of_user_code() -> None:
    found = {"metadata": METADATA, "spec": SPEC | FILES, "status": {}}

    refused = ObservedJob.of(found, UserCode.FORBID)
    other = {**found, "metadata": {**METADATA, "generation": 2}}
    accepted = ObservedJob.of({**found, "spec": SPEC}, UserCode.FORBID)

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
    found = {"metadata": METADATA, "spec": SPEC | {field: value}, "status": {}}

    assert "forbids user code" in ObservedJob.of(found, UserCode.FORBID).problems
    assert ObservedJob.of(found).problems == ""


def test_the_operator_takes_no_other_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--user-code", "maybe"])

    assert "invalid" in capsys.readouterr().err


def test_a_field_of_a_newer_definition_stops_the_job_and_is_named() -> None:
    newer = {"metadata": METADATA, "spec": {**SPEC, "ofTomorrow": {"a": 1}}, "status": {}}

    found = ObservedJob.of(newer)

    assert found.spec is None
    assert "spec.ofTomorrow" in found.problems


def test_what_is_seen_again_grows_older_and_what_is_gone_is_forgotten() -> None:
    """Time limits count from the first sight, whatever clocks do."""
    there, going = ("uid", Stage.THERE), ("uid", Stage.DELETING)
    sightings = Sightings()

    assert sightings.update([there], 100.0) == {there: 0.0}
    assert sightings.update([there, going], 107.0) == {there: 7.0, going: 0.0}
    assert sightings.update([], 108.0) == {}
    assert sightings.update([there], 109.0) == {there: 0.0}
