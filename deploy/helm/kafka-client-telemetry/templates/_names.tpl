{{/* Names, labels and the metadata of objects. */}}

{{- define "kafka-client-telemetry.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "kafka-client-telemetry.fullname" -}}
{{- $name := include "kafka-client-telemetry.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of a part: (dict "root" $ "suffix" "gateway-1"), and "most" where it may not have 63 characters. One that is cut ends with a hash, so that two releases never share it. */}}
{{- define "kafka-client-telemetry.partName" -}}
{{- $name := include "kafka-client-telemetry.fullname" .root -}}
{{- $room := sub (.most | default 63) (len .suffix | add 1) | int -}}
{{- if gt (len $name) $room -}}
{{- $name = printf "%s-%s" (trunc (sub $room 9 | int) $name | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- printf "%s-%s" $name .suffix -}}
{{- end -}}

{{/* The same for what Kubernetes or an operator makes names of by adding to it: StatefulSets, CronJobs and SparkApplications. */}}
{{- define "kafka-client-telemetry.ownerName" -}}
{{- include "kafka-client-telemetry.partName" (merge (dict "most" 52) .) -}}
{{- end -}}

{{/* The name of what Grafana reads, whose namespace several releases may put theirs into: (dict "root" $ "namespace" "" "suffix" "grafana-rules"). */}}
{{- define "kafka-client-telemetry.grafanaName" -}}
{{- $of := empty .namespace | ternary "" (printf "%s." .root.Release.Namespace) -}}
{{- printf "%s%s-%s" $of (include "kafka-client-telemetry.fullname" .root) .suffix -}}
{{- end -}}

{{- define "kafka-client-telemetry.dashboardName" -}}
{{- include "kafka-client-telemetry.grafanaName" (dict "root" .root "namespace" .root.Values.dashboards.configMaps.namespace "suffix" (printf "dashboard-%s" (base .path | trimSuffix ".json"))) -}}
{{- end -}}

{{- define "kafka-client-telemetry.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kafka-client-telemetry.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "kafka-client-telemetry.labels" -}}
{{ include "kafka-client-telemetry.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: kafka-client-telemetry
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* The metadata of an object: (dict "root" $ "name" "..." "component" "..."), and "namespace", "labels", "annotations" where it has its own. */}}
{{- define "kafka-client-telemetry.metadata" -}}
name: {{ .name }}
namespace: {{ .namespace | default .root.Release.Namespace }}
labels:
  {{- $own := include "kafka-client-telemetry.labels" . | fromYaml }}
  {{- toYaml (merge $own (.labels | default dict) .root.Values.commonLabels) | nindent 2 }}
{{- with merge dict (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The labels and annotations of pods, without versions: a new chart alone restarts nothing. (dict "root" $ "component" "..." "labels" {} "annotations" {} "values" .Values.gateway). */}}
{{- define "kafka-client-telemetry.podMetadata" -}}
labels:
  {{- $own := include "kafka-client-telemetry.selectorLabels" . | fromYaml }}
  {{- toYaml (merge $own (.labels | default dict) .values.podLabels .root.Values.commonLabels) | nindent 2 }}
{{- with merge dict (.annotations | default dict) .values.podAnnotations .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "kafka-client-telemetry.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "kafka-client-telemetry.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "kafka-client-telemetry.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}
