"""The Helm chart: the objects of `swe-rollout install`, and values of which a typo is an error.

Aspects: the same objects from both; a line of a manifest that the chart can't find stops the
generation; each value changes what it names and nothing else; wrong values are refused, with and
without Helm. Tests that render need Helm.
"""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from checkout import ROOT
from rollout_dev.helm import HELMS, find_helm
from swe_rollout.cli.install import manifests

CHART = ROOT / "charts" / "swe-rollout"
DIGEST = f"sha256:{'1f' * 32}"
IMAGE = "registry.example/team/worker"
NAMESPACE = "swe-rollout-system"
Json = dict[str, Any]
SCHEMA: Json = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS: Json = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
NEEDED = {"image": {"repository": IMAGE, "digest": DIGEST}}

WRONG: list[tuple[str, Json]] = [
    ("a misspelt key", {"replica": 1}),
    ("a misspelt key below", {"image": {"repositroy": IMAGE}}),
    ("two operators", {"replicas": 2}),
    ("a number as text", {"replicas": "1"}),
    ("a tag in the name", {"image": {"repository": f"{IMAGE}:1"}}),
    ("a digest in the name", {"image": {"repository": f"{IMAGE}@{DIGEST}"}}),
    ("a short digest", {"image": {"digest": "sha256:12ab"}}),
    ("a tag beside a digest", {"image": {"tag": "1", "digest": DIGEST}}),
    ("a pull policy of nobody", {"image": {"pullPolicy": "IfMissing"}}),
    ("user code neither way", {"userCode": "maybe"}),
    ("one namespace without its list", {"watchNamespaces": "rollouts"}),
    ("a namespace twice", {"watchNamespaces": ["a", "a"]}),
    ("a namespace in capitals", {"watchNamespaces": ["Rollouts"]}),
    ("a variable of the operator's own", {"extraEnv": [{"name": "WORKER_IMAGE", "value": "x"}]}),
    ("a variable as a mapping", {"extraEnv": {"A": "1"}}),
    ("a variable with a number", {"extraEnv": [{"name": "A", "value": 1}]}),
    ("an amount of no unit", {"resources": {"limits": {"memory": "512MB"}}}),
    ("resources of no kind", {"resources": {"limit": {"memory": "512Mi"}}}),
    ("metrics as a word", {"metrics": {"enabled": "yes please"}}),
    ("the label that the Deployment selects by", {"podLabels": {"app.kubernetes.io/name": "x"}}),
    ("a label with a number", {"podLabels": {"a": 1}}),
]


@pytest.fixture(autouse=True, params=HELMS, ids="helm-{}".format)
def major(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(f"{__name__}.find_helm", partial(find_helm, request.param))
    return int(request.param)


def helm(*arguments: str, values: Json, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Helm on the chart with these values."""
    program = find_helm()
    if program is None:
        pytest.skip("needs Helm: `make helm` builds it")
    given = folder / "values.yaml"
    given.write_text(yaml.safe_dump(values), encoding="utf-8")
    return subprocess.run(
        [str(program), *arguments, "--values", str(given)],
        capture_output=True,
        text=True,
        check=False,
        # Nothing of a person's own: neither repositories nor plugins nor a cluster.
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )


def rendered(folder: Path, values: Json | None = None, namespace: str = NAMESPACE) -> list[Json]:
    """Render the chart; return its objects."""
    done = helm(
        *("template", "rollouts", str(CHART), "--include-crds", "--namespace", namespace),
        values={**NEEDED, **(values or {})},
        folder=folder,
    )
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def by_name(objects: list[Json]) -> dict[tuple[str, str, str], Json]:
    found = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in objects
    }
    assert len(found) == len(objects)
    return found


def deployment(objects: list[Json]) -> Json:
    [found] = [each for each in objects if each["kind"] == "Deployment"]
    spec: Json = found["spec"]
    return spec


def installed() -> list[Json]:
    """Return the objects of `swe-rollout install`, but for the namespace, which is Helm's part."""
    objects = yaml.safe_load_all(manifests(f"{IMAGE}@{DIGEST}"))
    return [each for each in objects if each["kind"] != "Namespace"]


def test_the_chart_installs_what_the_command_installs(tmp_path: Path) -> None:
    ours, theirs = by_name(installed()), by_name(rendered(tmp_path))

    assert theirs.keys() == ours.keys()
    for name, each in ours.items():
        assert theirs[name] == each, name


def test_another_namespace_is_named_everywhere(tmp_path: Path) -> None:
    text = json.dumps(rendered(tmp_path, namespace="operators"))

    assert NAMESPACE not in text
    expected = json.dumps(installed()).replace(NAMESPACE, "operators")
    assert by_name(json.loads(text)) == by_name(json.loads(expected))


def test_chosen_namespaces_are_all_that_the_operator_has_rights_in(tmp_path: Path) -> None:
    objects = rendered(tmp_path, {"watchNamespaces": ["team-a", "team-b"]})

    names = by_name(objects)
    assert ("ClusterRoleBinding", "", "swe-rollout-operator") not in names
    for namespace in ("team-a", "team-b"):
        binding = names["RoleBinding", namespace, "swe-rollout-operator"]
        assert binding["roleRef"]["name"] == "swe-rollout-operator"
        assert binding["subjects"][0]["namespace"] == NAMESPACE
    discovery = names["ClusterRole", "", "swe-rollout-operator-discovery"]
    assert {verb for rule in discovery["rules"] for verb in rule["verbs"]} == {*("list", "watch")}
    # These are of its usual role, no others.
    usual = names["ClusterRole", "", "swe-rollout-operator"]["rules"]
    assert all(rule in usual for rule in discovery["rules"])
    [container] = deployment(objects)["template"]["spec"]["containers"]
    assert container["args"] == ["--namespace=team-a", "--namespace=team-b"]


def test_values_of_the_operator_reach_its_deployment(tmp_path: Path) -> None:
    values: Json = {
        "image": {"repository": IMAGE, "tag": "1.2", "pullPolicy": "Always"},
        "replicas": 0,
        "userCode": "forbid",
        "resources": {"limits": {"memory": "1Gi"}},
        "podSecurityContext": {"runAsUser": 1001},
        "securityContext": {"runAsGroup": 7},
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "podAnnotations": {"a.example/b": "c"},
        "podLabels": {"team": "rl"},
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"x": []}},
        "metrics": {"enabled": False},
    }
    spec = deployment(rendered(tmp_path, values))
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    image = f"{IMAGE}:1.2"

    assert spec["replicas"] == 0
    assert spec["template"]["metadata"]["annotations"] == {"a.example/b": "c"}
    assert spec["template"]["metadata"]["labels"] == {
        **spec["selector"]["matchLabels"],
        "app.kubernetes.io/part-of": "swe-rollout",
        "team": "rl",
    }
    for name in ("priorityClassName", "nodeSelector", "tolerations", "affinity"):
        assert pod[name] == values[name]
    # What is given is added to the defaults, which stay restricted.
    assert pod["securityContext"]["runAsUser"] == 1001
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["image"] == image
    assert container["imagePullPolicy"] == "Always"
    assert container["args"] == ["--user-code=forbid"]
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    assert [each["name"] for each in container["env"]] == ["WORKER_IMAGE", "POD_ID", "TZ"]
    assert container["env"][0]["value"] == image


def test_without_metrics_the_collector_has_no_way_in(tmp_path: Path) -> None:
    objects = by_name(rendered(tmp_path, {"metrics": {"enabled": False}}))

    policy = objects["NetworkPolicy", NAMESPACE, "swe-rollout-operator"]
    assert [each["port"] for each in policy["spec"]["ingress"][0]["ports"]] == ["health"]


def test_lint_finds_nothing(tmp_path: Path) -> None:
    done = helm("lint", "--strict", str(CHART), values=NEEDED, folder=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


def test_without_an_image_the_cure_is_named(tmp_path: Path) -> None:
    for missing, cure in ({}, "image.repository"), ({"repository": IMAGE}, "image.digest"):
        done = helm("template", "x", str(CHART), values={"image": missing}, folder=tmp_path)

        assert done.returncode != 0
        assert f"set {cure}" in done.stderr


@pytest.mark.parametrize(("image", "warns"), [({"tag": "v1"}, True), ({"digest": DIGEST}, False)])
def test_a_tag_is_a_warning(
    image: Json,
    warns: bool,  # noqa: FBT001
    major: int,
    tmp_path: Path,
) -> None:
    if major == 3:
        pytest.skip("Helm 3 asks a cluster even for what a client can render")
    shown = helm(
        *("install", "x", str(CHART), "--dry-run=client", "--namespace", "ops"),
        values={"image": {"repository": IMAGE, **image}},
        folder=tmp_path,
    )

    notes = shown.stdout.partition("NOTES:")[2]
    assert "deployment/swe-rollout-operator --namespace ops" in notes, shown.stderr
    assert ("WARNING: image.tag is set" in notes) is warns


def merged(defaults: Json, values: Json) -> Json:
    """Merge as Helm does: mappings into mappings, everything else replaced."""
    both = {
        key: merged(defaults[key], value)
        if isinstance(value, dict) and isinstance(defaults.get(key), dict)
        else value
        for key, value in values.items()
    }
    return {**defaults, **both}


def errors(values: Json) -> list[str]:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft7Validator(SCHEMA)
    return [error.message for error in validator.iter_errors(merged(DEFAULTS, values))]


@pytest.mark.parametrize(("mistake", "values"), WRONG, ids=[each for each, _ in WRONG])
def test_the_schema_refuses(mistake: str, values: Json) -> None:
    assert errors({**values, "image": {**NEEDED["image"], **values.get("image", {})}}), mistake


def test_helm_holds_values_against_the_schema(tmp_path: Path) -> None:
    done = helm("template", "x", str(CHART), values={**NEEDED, "replicas": 2}, folder=tmp_path)

    assert done.returncode != 0
    assert "don't meet the specifications of the schema" in done.stderr


def test_the_schema_knows_every_value_and_no_other() -> None:
    assert DEFAULTS.keys() == SCHEMA["properties"].keys() - {"global"}
