{{/* The pod of the workload, be it a Deployment or a StatefulSet. */}}
{{- define "oasr-worker.podTemplate" -}}
metadata:
  labels:
    {{- include "oasr-worker.labels" . | nindent 4 }}
    app.kubernetes.io/component: worker
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ include "oasr-worker.settings" . | sha256sum }}
    {{- if .Values.metrics.podAnnotations }}
    prometheus.io/scrape: "true"
    prometheus.io/port: {{ int .Values.http.port | quote }}
    prometheus.io/path: /metrics
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- include "oasr-worker.pullSecrets" . | nindent 2 }}
  serviceAccountName: {{ include "oasr-worker.serviceAccountName" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ int .Values.shutdown.terminationGracePeriodSeconds }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- if and .Values.gpu.enabled .Values.gpu.runtimeClassName }}
  runtimeClassName: {{ .Values.gpu.runtimeClassName }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with concat .Values.tolerations (ternary .Values.gpu.tolerations (list) .Values.gpu.enabled) }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- include "oasr-worker.spread" . | nindent 2 }}
  {{- if or .Values.extraInitContainers (eq .Values.model.source "hub") }}
  initContainers:
    {{- if eq .Values.model.source "hub" }}
    {{- include "oasr-worker.fetchContainer" . | nindent 4 }}
    {{- end }}
    {{- with .Values.extraInitContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    - name: worker
      {{- include "oasr-worker.container" . | nindent 6 }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "oasr-worker.fullname" . }}
    - name: tmp
      emptyDir:
        sizeLimit: {{ include "oasr-worker.tmpSizeLimit" . }}
    {{- if .Values.gpu.shm.enabled }}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ .Values.gpu.shm.sizeLimit }}}
    {{- end }}
    {{- if .Values.kafka.security.tls.existingSecret }}
    {{- include "oasr-worker.tlsVolume" . | nindent 4 }}
    {{- end }}
    {{- with include "oasr-worker.modelVolume" . }}
    - name: model
      {{- . | nindent 6 }}
    {{- end }}
    {{- if and (eq .Values.model.source "hub") .Values.model.hub.tokenSecret }}
    - name: hub-token
      secret:
        secretName: {{ .Values.model.hub.tokenSecret | quote }}
        defaultMode: 0440
        items:
          - {key: {{ .Values.model.hub.tokenKey | quote }}, path: token}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* Pods of one revision are told apart from those of the next: by what a controller labels them with. */}}
{{- define "oasr-worker.spread" -}}
{{- if .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml .Values.topologySpreadConstraints | nindent 2 }}
{{- else if .Values.spreadOverNodes }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "oasr-worker.selectorLabels" . | nindent 8 }}
    matchLabelKeys: [{{ ternary "controller-revision-hash" "pod-template-hash" (eq .Values.workload.kind "StatefulSet") }}]
{{- end }}
{{- end }}

{{/* 1 GiB, and room for as many of the largest files as are fetched at once, where they lie in /tmp. */}}
{{- define "oasr-worker.tmpSizeLimit" -}}
{{- $files := default (dict) .Values.config.files }}
{{- $fetched := or $files.https_hosts $files.s3_buckets }}
{{- if .Values.tmpSizeLimit }}{{ .Values.tmpSizeLimit }}
{{- else if and $fetched (ne .Values.lanes "live") (hasPrefix "/tmp" (default "/tmp" $files.temp_dir)) }}
{{- $all := mul (int64 (default 2 $files.workers)) (int64 (default 1073741824 $files.max_bytes)) }}
{{- add 1024 (div (add $all 1048575) 1048576) }}Mi
{{- else }}1Gi
{{- end }}
{{- end }}

{{/* Where the model's directory is mounted; empty with the one in the image. */}}
{{- define "oasr-worker.modelPath" -}}
{{- if .Values.model.path }}{{ .Values.model.path }}
{{- else if ne .Values.model.source "baked" }}/models
{{- end }}
{{- end }}

{{/* The source of the volume with the model; empty where the image has it. */}}
{{- define "oasr-worker.modelVolume" -}}
{{- $model := .Values.model }}
{{- if eq $model.source "pvc" }}
persistentVolumeClaim:
  claimName: {{ default (printf "%s-model" (include "oasr-worker.fullname" .)) $model.pvc.existingClaim | quote }}
  readOnly: true
{{- else if eq $model.source "imageVolume" }}
image:
  reference: {{ $model.imageVolume.reference | quote }}
  pullPolicy: {{ $model.imageVolume.pullPolicy }}
{{- else if eq $model.source "hub" }}
emptyDir: {sizeLimit: {{ $model.hub.sizeLimit }}}
{{- else if eq $model.source "custom" }}
{{- toYaml $model.volume }}
{{- end }}
{{- end }}
