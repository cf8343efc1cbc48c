{{/* What the chart's values say in the worker's own names, as YAML. */}}
{{- define "oasr-worker.ownSettings" -}}
{{- $kafka := .Values.kafka }}
{{- $sasl := $kafka.security.sasl }}
{{- $tls := $kafka.security.tls }}
kafka:
  bootstrap_servers: {{ $kafka.bootstrapServers | quote }}
  group: {{ $kafka.groupId | quote }}
  files_group: {{ include "oasr-worker.filesGroup" . | quote }}
  group_protocol: {{ $kafka.groupProtocol }}
  auto_offset_reset: {{ $kafka.autoOffsetReset }}
  max_poll_interval_ms: {{ int $kafka.maxPollIntervalMs }}
  {{- if not (kindIs "invalid" $kafka.sessionTimeoutMs) }}
  session_timeout_ms: {{ int $kafka.sessionTimeoutMs }}
  {{- else if and $kafka.staticMembership.enabled (eq $kafka.groupProtocol "classic") }}
  # a member that restarts keeps its partitions for as long as that may take
  session_timeout_ms: {{ int $kafka.maxPollIntervalMs }}
  {{- end }}
  security_protocol: {{ $kafka.security.protocol }}
  {{- with $sasl.mechanism }}
  sasl_mechanism: {{ . }}
  {{- end }}
  {{- if $tls.existingSecret }}
  {{- with $tls.caKey }}
  ssl_ca_location: /etc/oasr-worker/tls/{{ . }}
  {{- end }}
  {{- with $tls.certKey }}
  ssl_certificate_location: /etc/oasr-worker/tls/{{ . }}
  {{- end }}
  {{- with $tls.keyKey }}
  ssl_key_location: /etc/oasr-worker/tls/{{ . }}
  {{- end }}
  {{- end }}
  client: {{ toJson $kafka.client }}
  consumer: {{ toJson $kafka.consumer }}
  producer: {{ toJson $kafka.producer }}
topics:
  chunks: {{ $kafka.topics.chunks }}
  files: {{ $kafka.topics.files }}
  transcripts: {{ $kafka.topics.transcripts }}
  partials: {{ $kafka.topics.partials }}
  events: {{ $kafka.topics.events }}
  dead_letters: {{ $kafka.topics.deadLetters }}
  state: {{ $kafka.topics.state }}
  partitions: {{ int $kafka.partitions }}
  replication: {{ int .Values.topics.replicationFactor }}
lanes: {{ .Values.lanes }}
model:
  device: {{ ternary "cuda" "cpu" .Values.gpu.enabled }}
  {{- with include "oasr-worker.modelPath" . }}
  dir: {{ . | quote }}
  {{- end }}
http:
  port: {{ int .Values.http.port }}
log:
  level: {{ .Values.logging.level }}
  format: {{ .Values.logging.format }}
drain_timeout_ms: {{ mul (int .Values.shutdown.drainTimeoutSeconds) 1000 }}
{{- end }}

{{/* The file of --config: the above and `config`, which have no name in common (validate.yaml). */}}
{{- define "oasr-worker.settings" -}}
{{- $own := include "oasr-worker.ownSettings" . | fromYaml }}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.config)) }}
{{- end }}

{{/* Secrets reach the worker as variables and files, never through the ConfigMap. */}}
{{- define "oasr-worker.secretEnv" -}}
{{- $security := .Values.kafka.security }}
{{- with $security.sasl }}
{{- if .mechanism }}
- name: OASR_KAFKA__SASL_USERNAME
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .usernameKey | quote }}}}
- name: OASR_KAFKA__SASL_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .passwordKey | quote }}}}
{{- end }}
{{- end }}
{{- with $security.tls }}
{{- if and .existingSecret .keyPasswordKey }}
- name: OASR_KAFKA__SSL_KEY_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .keyPasswordKey | quote }}}}
{{- end }}
{{- end }}
{{- end }}

{{- define "oasr-worker.tlsVolume" -}}
{{- with .Values.kafka.security.tls }}
- name: tls
  secret:
    secretName: {{ .existingSecret | quote }}
    defaultMode: 0440
    items:
      {{- range (list .caKey .certKey .keyKey) }}
      {{- if . }}
      - {key: {{ . | quote }}, path: {{ . | quote }}}
      {{- end }}
      {{- end }}
{{- end }}
{{- end }}

{{/* librdkafka properties that are the worker's own: those of worker/settings_kafka.py. */}}
{{- define "oasr-worker.protected" -}}
[
  "acks", "auto.offset.reset", "bootstrap.servers", "delivery.timeout.ms", "enable.auto.commit",
  "enable.auto.offset.store", "enable.idempotence", "group.id", "group.instance.id",
  "group.protocol", "heartbeat.interval.ms", "isolation.level", "max.poll.interval.ms",
  "message.timeout.ms", "metadata.broker.list", "partition.assignment.strategy", "partitioner",
  "request.required.acks", "session.timeout.ms", "transaction.timeout.ms", "transactional.id"
]
{{- end }}
