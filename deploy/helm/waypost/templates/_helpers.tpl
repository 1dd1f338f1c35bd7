{{- define "waypost.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "waypost.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "waypost.labels" -}}
{{ include "waypost.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "waypost.metadata" -}}
name: {{ include "waypost.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "waypost.labels" . | nindent 2 }}
{{- end -}}

{{- define "waypost.probe" -}}
httpGet:
  path: /health
  port: http
  httpHeaders: [{name: Host, value: localhost}]
timeoutSeconds: 10
{{- end -}}
