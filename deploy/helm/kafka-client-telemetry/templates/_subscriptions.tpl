{{/* The subscriptions of the values: a ConfigMap, which receivers mount as the folder of `store: file`. */}}

{{- define "kafka-client-telemetry.subscriptions.configMapName" -}}
{{- include "kafka-client-telemetry.partName" (dict "root" . "suffix" "subscriptions") -}}
{{- end -}}

{{- define "kafka-client-telemetry.subscriptions.folder" -}}
/etc/kafka-telemetry-subscriptions
{{- end -}}

{{/* The file: a list, also where the values are a mapping by name, and with the content of presets. */}}
{{- define "kafka-client-telemetry.subscriptions.file" -}}
{{- $list := list -}}
{{- if kindIs "map" .Values.subscriptions -}}
{{- range $name, $subscription := .Values.subscriptions -}}
{{- $list = append $list (merge (dict "name" $name) $subscription) -}}
{{- end -}}
{{- else -}}
{{- $list = .Values.subscriptions -}}
{{- end -}}
{{- $written := list -}}
{{- range $subscription := $list -}}
{{- with $subscription.preset -}}
{{- $subscription = merge (omit $subscription "preset") (printf "presets/%s.json" . | $.Files.Get | fromJson) -}}
{{- end -}}
{{- $written = append $written $subscription -}}
{{- end -}}
{{- toYaml $written -}}
{{- end -}}
