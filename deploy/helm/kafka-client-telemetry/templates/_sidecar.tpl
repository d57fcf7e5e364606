{{/*
What a broker chart or a StatefulSet includes. The context is this chart's own: `.` in this chart, in a parent chart
`(index .Subcharts "kafka-client-telemetry")`. README.md shows a whole pod.
*/}}

{{- define "kafka-client-telemetry.sidecar.configMapName" -}}
{{- include "kafka-client-telemetry.partName" (dict "root" . "suffix" "sidecar") -}}
{{- end -}}

{{/* An entry of a pod's initContainers: a native sidecar, that starts before the broker and ends after it. */}}
{{- define "kafka-client-telemetry.sidecar.container" -}}
{{- $ports := list -}}
{{- range .Values.config.listeners -}}
{{- $port := include "kafka-client-telemetry.port" .bind -}}
{{- $ports = append $ports (dict "name" (printf "kafka-%s" $port) "port" $port) -}}
{{- end -}}
{{- $from := .Values.sidecar.broker.idFrom -}}
{{- $paths := dict "podIndex" "metadata.labels['apps.kubernetes.io/pod-index']" "podLabel" (printf "metadata.labels['%s']" .Values.sidecar.broker.key) "podAnnotation" (printf "metadata.annotations['%s']" .Values.sidecar.broker.key) -}}
{{- $env := list -}}
{{- if ne $from "config" -}}
{{- $env = list (dict "name" "KAFKA_TELEMETRY_BROKER__ID" "valueFrom" (dict "fieldRef" (dict "fieldPath" (get $paths $from)))) -}}
{{- end -}}
name: {{ .Values.sidecar.name }}
restartPolicy: Always
{{ include "kafka-client-telemetry.receiverContainer" (dict "root" . "ports" $ports "env" $env "dataVolume" .Values.sidecar.data.volume "dataSubPath" .Values.sidecar.data.subPath) }}
{{- end -}}

{{/* Its startup, liveness and readiness probe alone, for a container that somebody writes by hand. */}}
{{- define "kafka-client-telemetry.sidecar.probes" -}}
{{ include "kafka-client-telemetry.probes" (dict "root" .) | trim }}
{{- end -}}

{{/* Entries of the pod's volumes. */}}
{{- define "kafka-client-telemetry.sidecar.volumes" -}}
{{- $data := dict -}}
{{- if not .Values.sidecar.data.volume -}}
{{- $data = dict "emptyDir" (dict "sizeLimit" .Values.sidecar.data.sizeLimit) -}}
{{- end -}}
{{ include "kafka-client-telemetry.receiverVolumes" (dict "root" . "configMap" (include "kafka-client-telemetry.sidecar.configMapName" .) "key" "config.yaml" "data" $data) | trim }}
{{- end -}}

{{/* What the receiver reads. */}}
{{- define "kafka-client-telemetry.sidecar.config" -}}
{{- $pods := include "kafka-client-telemetry.sidecar.podSelector" . | empty | not | ternary (include "kafka-client-telemetry.partName" (dict "root" . "suffix" "sidecar")) "" -}}
{{ include "kafka-client-telemetry.receiverConfig" (dict "root" . "pods" $pods) }}
{{- end -}}

{{/* Annotations of the pod: with it, a new configuration rolls the brokers. */}}
{{- define "kafka-client-telemetry.sidecar.podAnnotations" -}}
kafka-client-telemetry/sidecar-config: {{ include "kafka-client-telemetry.sidecar.config" . | sha256sum }}
{{- end -}}

{{/* Labels that select the pods with sidecars. */}}
{{- define "kafka-client-telemetry.sidecar.podSelector" -}}
{{- if .Values.sidecar.podSelector -}}
{{ toYaml .Values.sidecar.podSelector }}
{{- else if .Values.exampleBroker.enabled -}}
{{ include "kafka-client-telemetry.selectorLabels" (dict "root" . "component" "example-broker") }}
{{- end -}}
{{- end -}}
