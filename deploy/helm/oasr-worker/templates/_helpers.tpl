{{- define "oasr-worker.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 50 characters, so that suffixes still fit in a name of 63. */}}
{{- define "oasr-worker.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := include "oasr-worker.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "oasr-worker.selectorLabels" -}}
app.kubernetes.io/name: {{ include "oasr-worker.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "oasr-worker.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "oasr-worker.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "oasr-worker.image" -}}
{{- $image := .Values.image }}
{{- $registry := default (default "" .Values.global.imageRegistry) $image.registry }}
{{- if $registry }}{{ $registry }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .Chart.AppVersion $image.tag }}{{ end }}
{{- end }}

{{- define "oasr-worker.pullSecrets" -}}
{{- with concat (default (list) .Values.global.imagePullSecrets) .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "oasr-worker.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "oasr-worker.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "oasr-worker.filesGroup" -}}
{{- default (printf "%s.files" .Values.kafka.groupId) .Values.kafka.filesGroupId }}
{{- end }}

{{- define "oasr-worker.headlessName" -}}
{{- printf "%s-members" (include "oasr-worker.fullname" .) }}
{{- end }}
