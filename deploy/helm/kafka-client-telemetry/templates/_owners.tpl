{{/* The owners of the values: a ConfigMap, which receivers mount as the folder of `owners.path`. */}}

{{- define "kafka-client-telemetry.owners.configMapName" -}}
{{- include "kafka-client-telemetry.partName" (dict "root" . "suffix" "owners") -}}
{{- end -}}

{{- define "kafka-client-telemetry.owners.folder" -}}
/etc/kafka-telemetry-owners
{{- end -}}

{{/* The file: a list, also where the values are a mapping by team. */}}
{{- define "kafka-client-telemetry.owners.file" -}}
{{- $list := list -}}
{{- if kindIs "map" .Values.owners -}}
{{- range $team, $owner := .Values.owners -}}
{{- $list = append $list (merge (dict "team" $team) $owner) -}}
{{- end -}}
{{- else -}}
{{- $list = .Values.owners -}}
{{- end -}}
{{- toYaml $list -}}
{{- end -}}
