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
args: {{ concat (list "run" "--config" "/etc/oasr-worker/config.yaml") .Values.extraArgs | toJson }}
env:
  # whatever a library wants to keep goes where the container may write
  - {name: HOME, value: /tmp}
  {{- range tuple "XDG_CACHE_HOME" "CUDA_CACHE_PATH" "TRITON_CACHE_DIR" "TORCHINDUCTOR_CACHE_DIR" "NUMBA_CACHE_DIR" }}
  - {name: {{ . }}, value: /tmp/cache}
  {{- end }}
  {{- if .Values.kafka.staticMembership.enabled }}
  - name: OASR_KAFKA__GROUP_INSTANCE_ID
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- end }}
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
{{- with .Values.shutdown.preStop }}
lifecycle:
  preStop:
    {{- toYaml . | nindent 4 }}
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
  {{- if .Values.gpu.shm.enabled }}
  - {name: shm, mountPath: /dev/shm}
  {{- end }}
  {{- if ne .Values.model.source "baked" }}
  - name: model
    mountPath: {{ include "oasr-worker.modelPath" . | quote }}
    readOnly: true
    {{- with .Values.model.subPath }}
    subPath: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Fills the volume of the model before the worker starts; that mounts it read-only. */}}
{{- define "oasr-worker.fetchContainer" -}}
{{- $hub := .Values.model.hub }}
- name: model
  image: {{ include "oasr-worker.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - fetch-model
    - {{ $hub.repository | quote }}
    - --to={{ include "oasr-worker.modelPath" . }}
    - {{ printf "--revision=%s" $hub.revision | quote }}
    - {{ printf "--endpoint=%s" $hub.endpoint | quote }}
    {{- if $hub.tokenSecret }}
    - --token-file=/etc/oasr-worker/hub/token
    {{- end }}
  env:
    - {name: HOME, value: /tmp}
  resources:
    requests: {cpu: 100m, memory: 128Mi}
    limits: {memory: 512Mi}
  securityContext:
    {{- toYaml .Values.securityContext | nindent 4 }}
  volumeMounts:
    - name: model
      mountPath: {{ include "oasr-worker.modelPath" . | quote }}
    - {name: tmp, mountPath: /tmp}
    {{- if $hub.tokenSecret }}
    - {name: hub-token, mountPath: /etc/oasr-worker/hub, readOnly: true}
    {{- end }}
{{- end }}
