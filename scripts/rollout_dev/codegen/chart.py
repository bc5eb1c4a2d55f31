"""Make the templates of the Helm chart from manifests/, so that both install the same objects.

Each resource becomes one template. What a value may change is replaced here, line by line: a line
that is no longer in the manifest stops the generation. Written by hand in charts/swe-rollout are
the values with their schema, and the parts that exist in the chart only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from rollout_dev.codegen.bundle import resources

FOLDER: Final = "charts/swe-rollout"
_NAMESPACE: Final = "swe-rollout-system"
"""In the manifests; the chart's is the release's."""
_LEFT_OUT: Final = ("namespace.yaml",)
"""Helm creates a release's namespace, or finds it."""
_CRDS: Final = "crd/"
"""Installed first by Helm, as they are, and never updated."""
_HEADER: Final = "# Made by scripts/generate; change manifests/{source} instead.\n"

_CONDITIONS: Final = {
    "rbac/people.yaml": ".Values.aggregateRoles",
    "network/operator.yaml": ".Values.networkPolicy.enabled",
}
"""Templates that a value leaves out."""

_REPLACED: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "rbac/operator.yaml": (
        (
            """\
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
""",
            """\
{{- if not .Values.watchNamespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
""",
        ),
        (
            """\
subjects:
  - kind: ServiceAccount
    name: swe-rollout-operator
    namespace: swe-rollout-system
""",
            """\
subjects:
  - kind: ServiceAccount
    name: swe-rollout-operator
    namespace: swe-rollout-system
{{- end }}
""",
        ),
    ),
    "network/operator.yaml": (
        (
            """\
        - protocol: TCP
          port: metrics
""",
            """\
        {{- if .Values.metrics.enabled }}
        - protocol: TCP
          port: metrics
        {{- end }}
""",
        ),
    ),
    "operator/deployment.yaml": (
        (
            """\
  replicas: 1
""",
            """\
  replicas: {{ .Values.replicas }}
""",
        ),
        (
            """\
        app.kubernetes.io/part-of: swe-rollout
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "8081"
""",
            """\
        app.kubernetes.io/part-of: swe-rollout
        {{- with .Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if or .Values.metrics.enabled .Values.podAnnotations }}
      annotations:
        {{- if .Values.metrics.enabled }}
        prometheus.io/scrape: "true"
        prometheus.io/port: "8081"
        {{- end }}
        {{- with .Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
""",
        ),
        (
            """\
      securityContext:
        runAsNonRoot: true
        seccompProfile:
          type: RuntimeDefault
""",
            """\
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . | quote }}
      {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml .Values.podSecurityContext | nindent 8 }}
""",
        ),
        (
            """\
          image: swe-rollout/worker:local
          imagePullPolicy: IfNotPresent
""",
            """\
          image: {{ include "swe-rollout.image" . | quote }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
""",
        ),
        (
            """\
          command: [python3, -m, rollout_operator]
""",
            """\
          command: [python3, -m, rollout_operator]
          {{- with include "swe-rollout.args" . }}
          args:
            {{- . | nindent 12 }}
          {{- end }}
""",
        ),
        (
            """\
              value: swe-rollout/worker:local
""",
            """\
              value: {{ include "swe-rollout.image" . | quote }}
""",
        ),
        (
            """\
          ports:
""",
            """\
            {{- with .Values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
""",
        ),
        (
            """\
          resources:
            requests:
              cpu: 50m
              memory: 128Mi
            limits:
              memory: 512Mi
""",
            """\
          resources:
            {{- toYaml .Values.resources | nindent 12 }}
""",
        ),
        (
            """\
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
""",
            """\
          securityContext:
            {{- toYaml .Values.securityContext | nindent 12 }}
""",
        ),
    ),
}
"""Lines of a manifest, and what the template has instead."""


def chart(
    kustomization: Path, generated: Mapping[Path, str], project: Mapping[str, str]
) -> dict[str, str]:
    """Return the generated files of the chart by name; `project` is that of pyproject.toml."""
    files = {f"{FOLDER}/Chart.yaml": _metadata(project)}
    seen: set[str] = set()
    for path in resources(kustomization):
        source = path.relative_to(kustomization.parent).as_posix()
        text = generated.get(path) or path.read_text(encoding="utf-8")
        seen.add(source)
        if source in _LEFT_OUT:
            continue
        if source.startswith(_CRDS):
            files[f"{FOLDER}/crds/{path.name}"] = text
        else:
            name = source.replace("/", "-")
            files[f"{FOLDER}/templates/{name}"] = template(source, text)
    if missing := {*_REPLACED, *_CONDITIONS, *_LEFT_OUT} - seen:
        raise SystemExit(f"{kustomization}: the chart expects {', '.join(sorted(missing))}")
    return files


def template(source: str, text: str) -> str:
    """Make the template of one resource."""
    if "{{" in text:
        raise SystemExit(f"manifests/{source}: {{{{ would be read by Helm")
    for before, after in _REPLACED.get(source, ()):
        if text.count(before) != 1:
            raise SystemExit(f"manifests/{source}: the chart needs these lines once:\n{before}")
        text = text.replace(before, after)
    text = text.replace(_NAMESPACE, "{{ .Release.Namespace }}")
    if (condition := _CONDITIONS.get(source)) is not None:
        text = f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"
    return _HEADER.format(source=source) + text


def _metadata(project: Mapping[str, str]) -> str:
    value = {
        "apiVersion": "v2",
        "name": "swe-rollout",
        "description": "The operator of RolloutJobs: episodes of coding agents on Kubernetes.",
        "type": "application",
        "version": project["version"],
        "appVersion": project["version"],
        # ValidatingAdmissionPolicy.
        "kubeVersion": ">=1.30.0-0",
        "keywords": ["reinforcement-learning", "coding-agents", "rollouts"],
        "annotations": {"artifacthub.io/license": project["license"]},
    }
    return "# Made by scripts/generate; change pyproject.toml instead.\n" + yaml.safe_dump(
        value, sort_keys=False
    )
