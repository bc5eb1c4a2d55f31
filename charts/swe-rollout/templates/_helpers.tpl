{{/* The image by digest, or by tag where there is none. */}}
{{- define "swe-rollout.image" -}}
{{- $image := .Values.image -}}
{{- $name := required "set image.repository to your build of the worker's image, such as registry.example/swe-rollout/worker" $image.repository -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ required "set image.digest to the image's sha256:…, or image.tag to a tag" $image.tag }}
{{- end -}}
{{- end -}}

{{/* The operator's arguments; none by default. */}}
{{- define "swe-rollout.args" -}}
{{- range .Values.watchNamespaces }}
- --namespace={{ . }}
{{- end }}
{{- if ne .Values.userCode "allow" }}
- --user-code={{ .Values.userCode }}
{{- end }}
{{- end -}}
