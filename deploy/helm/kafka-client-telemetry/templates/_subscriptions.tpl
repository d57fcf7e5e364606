{{/* The subscriptions of the values: a ConfigMap, which receivers mount as the folder of `store: file`. */}}

{{- define "kafka-client-telemetry.subscriptions.configMapName" -}}
{{- include "kafka-client-telemetry.partName" (dict "root" . "suffix" "subscriptions") -}}
{{- end -}}

{{- define "kafka-client-telemetry.subscriptions.folder" -}}
/etc/kafka-telemetry-subscriptions
{{- end -}}

{{/* The file: a list, also where the values are a mapping by name. */}}
{{- define "kafka-client-telemetry.subscriptions.file" -}}
{{- $list := list -}}
{{- if kindIs "map" .Values.subscriptions -}}
{{- range $name, $subscription := .Values.subscriptions -}}
{{- $list = append $list (merge (dict "name" $name) $subscription) -}}
{{- end -}}
{{- else -}}
{{- $list = .Values.subscriptions -}}
{{- end -}}
{{- toYaml $list -}}
{{- end -}}
