"""The page of metrics and the dashboard: both agree with what is served."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import yaml

from checkout import ROOT
from rollout_dev.codegen.reference import operator_families, questions
from rollout_operator.metrics import MOST_JOBS
from rollout_operator.resources import METRICS_PORT
from swe_rollout.spec.status import JOB_LABEL, ROLE_LABEL, EpisodeCounts, State
from swe_rollout.telemetry import catalog
from swe_rollout.telemetry.metrics import RolloutMetrics

MONITORING = ROOT / "manifests" / "monitoring"
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
DASHBOARD = json.loads((MONITORING / "swe-rollout.json").read_text("utf-8"))
QUERIES = [each["expr"] for panel in DASHBOARD["panels"] for each in panel["targets"]]


def served() -> set[str]:
    """Return the names of all metrics, of workers and of the operator."""
    suffixes = {"counter": "_total"}
    families = [*RolloutMetrics().registry.collect(), *operator_families()]
    return {f"{each.name}{suffixes.get(each.type, '')}" for each in families}


def documents(name: str) -> Iterator[dict[str, object]]:
    yield from yaml.safe_load_all((MONITORING / name).read_text("utf-8"))


def test_the_page_has_each_metric_that_is_served_and_no_other() -> None:
    rows = re.findall(
        r"^\| `(swe_rollout_\w+)` \| (?:counter|gauge|histogram) ", PAGE, re.MULTILINE
    )
    assert set(rows) == {name for name in served() if name.startswith("swe_rollout_")}
    kinds = PAGE.partition("| `kind` |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", kinds, re.MULTILINE) == list(EpisodeCounts.model_fields)
    assert [state for state in State if f"`{state.value}`" not in PAGE] == []
    assert f"port {METRICS_PORT}" in PAGE
    assert f"at most {catalog.LABEL_VALUES} plain names" in PAGE
    assert f"beyond {MOST_JOBS} jobs" in PAGE


def test_questions_and_panels_ask_for_metrics_that_there_are() -> None:
    asked = [*QUERIES, *questions(PAGE).values()]
    names = {
        name for query in asked for name in re.findall(r"\b(?:swe_rollout|process)_\w+", query)
    }
    plain = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}
    assert plain <= served()


def test_every_metric_of_rollouts_is_on_the_dashboard() -> None:
    text = " ".join(QUERIES)
    assert [each for each in catalog.METRICS if each.name not in text] == [catalog.ATTEMPTS]


def test_the_dashboard_fits_grafana() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10
    cells = {
        (panel["gridPos"]["x"], panel["gridPos"]["y"]): panel["gridPos"]["w"] for panel in panels
    }
    assert len(cells) == len(panels)
    assert all(x + width <= 24 for (x, _), width in cells.items())
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) - {"__rate_interval"}
    assert used == variables


def test_the_monitors_find_the_pods_and_their_port() -> None:
    (workers,) = documents("workers.yaml")
    spec = workers["spec"]
    assert isinstance(spec, dict)
    assert spec["selector"]["matchLabels"] == {ROLE_LABEL: "worker"}
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"
    (relabeling,) = endpoint["relabelings"]
    meta = "__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", JOB_LABEL)
    assert relabeling == {"sourceLabels": [meta], "targetLabel": "rolloutjob"}
    (operator,) = documents("operator.yaml")
    spec = operator["spec"]
    assert isinstance(spec, dict)
    (deployment,) = yaml.safe_load_all((ROOT / "manifests/operator/deployment.yaml").read_text())
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = spec["podMetricsEndpoints"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert endpoint["port"] in [each["name"] for each in container["ports"]]
    assert endpoint["honorLabels"] is True


def test_workers_take_no_connections_but_scrapes() -> None:
    (policy,) = documents("namespace/network-policy.yaml")
    spec = policy["spec"]
    assert isinstance(spec, dict)
    assert spec["podSelector"]["matchLabels"] == {ROLE_LABEL: "worker"}
    assert spec["policyTypes"] == ["Ingress"]
    (rule,) = spec["ingress"]
    assert [each["port"] for each in rule["ports"]] == ["metrics"]
    assert rule["from"]
