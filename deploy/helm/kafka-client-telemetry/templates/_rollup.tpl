{{/* The roll-up's pods. */}}

{{- define "kafka-client-telemetry.rollup.config" -}}
{{- toYaml (merge (dict "postgres" (dict "file" "/run/secrets/kafka-telemetry/postgres/url")) (deepCopy .Values.rollup.config)) -}}
{{- end -}}

{{- define "kafka-client-telemetry.rollup.image" -}}
{{ include "kafka-client-telemetry.image" (dict "root" . "image" .Values.rollup.image) }}
{{- end -}}

{{- define "kafka-client-telemetry.rollup.claimName" -}}
{{- .Values.rollup.persistence.existingClaim | default (include "kafka-client-telemetry.partName" (dict "root" . "suffix" "rollup")) -}}
{{- end -}}

{{/* The class path of the jars that Spark gets beside its own, where `spark-submit` starts it. */}}
{{- define "kafka-client-telemetry.rollup.classPath" -}}
{{- $sets := list "decoder" -}}
{{- if eq .Values.rollup.config.source "kafka" }}{{ $sets = append $sets "kafka" }}{{ end -}}
{{- if eq ((.Values.rollup.config.lake | default dict).format | default "parquet") "delta" }}{{ $sets = append $sets "delta" }}{{ end -}}
{{- $paths := list -}}
{{- range $sets }}{{ $paths = append $paths (printf "%s/%s/*" $.Values.rollup.image.jars .) }}{{ end -}}
{{- join ":" $paths -}}
{{- end -}}

{{/* The port that Prometheus scrapes; empty without one. */}}
{{- define "kafka-client-telemetry.rollup.metricsPort" -}}
{{- if .Values.rollup.enabled -}}
{{- with (.Values.rollup.config.metrics | default dict).bind -}}{{- include "kafka-client-telemetry.port" . -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* The container's ports: Prometheus's, and those of a standalone Spark's executors. */}}
{{- define "kafka-client-telemetry.rollup.ports" -}}
{{- with include "kafka-client-telemetry.rollup.metricsPort" . }}
- {name: metrics, containerPort: {{ . }}, protocol: TCP}
{{- end }}
{{- with include "kafka-client-telemetry.rollup.driverPorts" . | fromYamlArray }}
- {name: driver, containerPort: {{ index . 0 }}, protocol: TCP}
- {name: block-manager, containerPort: {{ index . 1 }}, protocol: TCP}
{{- end }}
{{- end -}}

{{/* Ports of the driver that a standalone Spark's executors connect to: its own and its block manager's; empty without such a Spark. */}}
{{- define "kafka-client-telemetry.rollup.driverPorts" -}}
{{- $submit := .Values.rollup.submit -}}
{{- if and $submit.enabled (hasPrefix "spark://" $submit.master) }}[7078, 7079]{{ end -}}
{{- end -}}

{{/* What runs, of Deployment, Job and CronJob: (dict "root" $ "once" true). */}}
{{- define "kafka-client-telemetry.rollup.command" -}}
{{- $submit := .root.Values.rollup.submit -}}
{{- $classPath := include "kafka-client-telemetry.rollup.classPath" .root -}}
{{- if $submit.enabled -}}
args:
  - spark-submit
  - --master
  - {{ $submit.master | quote }}
  - --deploy-mode
  - client
  - --conf
  - {{ printf "spark.driver.extraClassPath=%s" $classPath | quote }}
  - --conf
  - {{ printf "spark.executor.extraClassPath=%s" $classPath | quote }}
  {{- with include "kafka-client-telemetry.rollup.driverPorts" .root | fromYamlArray }}
  {{- /* Executors are on other machines, where a pod's name says nothing. */}}
  - --conf
  - spark.driver.host=$(POD_IP)
  - --conf
  - spark.driver.port={{ index . 0 }}
  - --conf
  - spark.driver.blockManager.port={{ index . 1 }}
  {{- end }}
  {{- range $submit.arguments }}
  - {{ . | quote }}
  {{- end }}
  - {{ .root.Values.rollup.image.main }}
{{- else -}}
args:
  - rollup
{{- end }}
  - run
  - --config
  - /etc/kafka-telemetry/rollup.yaml
  {{- if .once }}
  - --once
  {{- end }}
{{- end -}}

{{- define "kafka-client-telemetry.rollup.env" -}}
{{- if include "kafka-client-telemetry.rollup.driverPorts" . }}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
{{- end }}
{{ toYaml (concat (list (dict "name" "KAFKA_TELEMETRY_JARS" "value" .Values.rollup.image.jars)) .Values.rollup.extraEnv) }}
{{- end -}}

{{- define "kafka-client-telemetry.rollup.volumeMounts" -}}
- {name: kafka-telemetry-config, mountPath: /etc/kafka-telemetry, readOnly: true}
- {name: kafka-telemetry-postgres, mountPath: /run/secrets/kafka-telemetry/postgres, readOnly: true}
- {name: kafka-telemetry-data, mountPath: /var/lib/kafka-telemetry}
- {name: kafka-telemetry-tmp, mountPath: /tmp}
{{ include "kafka-client-telemetry.rollup.sourceMounts" . | trim }}
{{- end -}}

{{/* What executors need too. */}}
{{- define "kafka-client-telemetry.rollup.sourceMounts" -}}
{{- if .Values.rollup.spool.existingClaim }}
- {name: kafka-telemetry-spool, mountPath: {{ .Values.rollup.spool.mountPath }}, readOnly: true}
{{- end }}
{{ include "kafka-client-telemetry.secretVolumeMounts" (dict "mounts" .Values.rollup.secretMounts) | trim }}
{{- with .Values.rollup.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kafka-client-telemetry.rollup.volumes" -}}
- name: kafka-telemetry-config
  configMap: {name: {{ include "kafka-client-telemetry.partName" (dict "root" . "suffix" "rollup") }}}
- name: kafka-telemetry-postgres
  secret:
    secretName: {{ .Values.rollup.postgres.secretName }}
    items: [{key: {{ .Values.rollup.postgres.key }}, path: url}]
- name: kafka-telemetry-data
  {{- if .Values.rollup.persistence.enabled }}
  persistentVolumeClaim: {claimName: {{ include "kafka-client-telemetry.rollup.claimName" . }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: kafka-telemetry-tmp
  emptyDir: {}
{{- with .Values.rollup.spool.existingClaim }}
- name: kafka-telemetry-spool
  persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
{{- end }}
{{ include "kafka-client-telemetry.secretVolumes" (dict "mounts" .Values.rollup.secretMounts) | trim }}
{{- with .Values.rollup.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A pod's template of Deployment, Job and CronJob: (dict "root" $ "once" true). */}}
{{- define "kafka-client-telemetry.rollup.podTemplate" -}}
{{- $rollup := .root.Values.rollup -}}
{{- $checksum := dict "kafka-client-telemetry/rollup-config" (include "kafka-client-telemetry.rollup.config" .root | sha256sum) -}}
metadata:
  {{- include "kafka-client-telemetry.podMetadata" (dict "root" .root "component" "rollup" "values" $rollup "annotations" $checksum) | nindent 2 }}
spec:
  {{- if .once }}
  restartPolicy: Never
  {{- end }}
  serviceAccountName: {{ include "kafka-client-telemetry.serviceAccountName" .root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ int $rollup.terminationGracePeriodSeconds }}
  securityContext:
    {{- toYaml .root.Values.podSecurityContext | nindent 4 }}
  {{- with include "kafka-client-telemetry.scheduling" (dict "root" .root "values" $rollup) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $rollup.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- include "kafka-client-telemetry.spread" (dict "constraints" . "labels" (include "kafka-client-telemetry.selectorLabels" (dict "root" $.root "component" "rollup"))) | trim | nindent 4 }}
  {{- end }}
  containers:
    - name: rollup
      image: {{ include "kafka-client-telemetry.rollup.image" .root }}
      imagePullPolicy: {{ $rollup.image.pullPolicy }}
      {{- include "kafka-client-telemetry.rollup.command" . | nindent 6 }}
      workingDir: /var/lib/kafka-telemetry
      env:
        {{- include "kafka-client-telemetry.rollup.env" .root | trim | nindent 8 }}
      {{- with $rollup.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with include "kafka-client-telemetry.rollup.ports" .root | trim }}
      ports:
        {{- . | nindent 8 }}
      {{- end }}
      resources:
        {{- toYaml $rollup.resources | nindent 8 }}
      securityContext:
        {{- toYaml .root.Values.containerSecurityContext | nindent 8 }}
      volumeMounts:
        {{- include "kafka-client-telemetry.rollup.volumeMounts" .root | trim | nindent 8 }}
  volumes:
    {{- include "kafka-client-telemetry.rollup.volumes" .root | trim | nindent 4 }}
{{- end -}}

{{/* What driver and executors of a SparkApplication have in common. */}}
{{- define "kafka-client-telemetry.rollup.sparkPod" -}}
{{- $rollup := .Values.rollup }}
{{- with $rollup.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $rollup.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $rollup.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $rollup.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $rollup.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
podSecurityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
securityContext:
  {{- toYaml .Values.containerSecurityContext | nindent 2 }}
{{- end -}}
