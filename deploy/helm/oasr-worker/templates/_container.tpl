{{- define "oasr-worker.probe" -}}
{{- $probe := .probe }}
httpGet: {path: {{ .path }}, port: http}
periodSeconds: {{ int $probe.periodSeconds }}
failureThreshold: {{ int $probe.failureThreshold }}
timeoutSeconds: {{ int $probe.timeoutSeconds }}
{{- end }}

{{- define "oasr-worker.resources" -}}
{{- $resources := deepCopy .Values.resources }}
{{- if .Values.gpu.enabled }}
{{- $gpu := dict .Values.gpu.resourceName (int .Values.gpu.count) }}
{{- $resources = mergeOverwrite $resources (dict "limits" $gpu) }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{/* The worker's container, but for its name. */}}
{{- define "oasr-worker.container" -}}
image: {{ include "oasr-worker.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [run, --config, /etc/oasr-worker/config.yaml]
env:
  - {name: HOME, value: /tmp}
  {{- with include "oasr-worker.secretEnv" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - {name: http, containerPort: {{ int .Values.http.port }}, protocol: TCP}
{{- with .Values.probes }}
{{- if .startup.enabled }}
startupProbe:
  {{- include "oasr-worker.probe" (dict "probe" .startup "path" "/startupz") | nindent 2 }}
{{- end }}
{{- if .liveness.enabled }}
livenessProbe:
  {{- include "oasr-worker.probe" (dict "probe" .liveness "path" "/livez") | nindent 2 }}
{{- end }}
{{- if .readiness.enabled }}
readinessProbe:
  {{- include "oasr-worker.probe" (dict "probe" .readiness "path" "/readyz") | nindent 2 }}
{{- end }}
{{- end }}
resources:
  {{- include "oasr-worker.resources" . | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/oasr-worker/config.yaml, subPath: config.yaml, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  {{- if .Values.kafka.security.tls.existingSecret }}
  - {name: tls, mountPath: /etc/oasr-worker/tls, readOnly: true}
  {{- end }}
  {{- if .Values.model.volume }}
  - name: model
    mountPath: {{ .Values.model.path | quote }}
    readOnly: true
    {{- with .Values.model.subPath }}
    subPath: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
