{{/* Receivers in front of brokers: one workload, whose pods have a listener for each broker. */}}

{{/* The listener of a broker: (dict "root" $ "broker" {...}), as YAML. */}}
{{- define "kafka-client-telemetry.gateway.listener" -}}
{{- $gateway := .root.Values.gateway -}}
{{- $common := merge (dict "broker" (omit (.root.Values.config.broker | default dict) "id")) (omit $gateway.listener "name" "broker") -}}
{{- $_ := set $common "name" (printf "%s-%d" $gateway.listener.name (int .broker.id)) -}}
{{- $_ := set $common "broker" (mergeOverwrite $common.broker ($gateway.listener.broker | default dict)) -}}
{{- $own := dict "bind" (printf "%s:%d" $gateway.bindAddress (int .broker.port)) "upstream" .broker.upstream "broker" (dict "id" (int .broker.id)) -}}
{{- toYaml (mergeOverwrite (deepCopy $common) (deepCopy (.broker.listener | default dict)) $own) -}}
{{- end -}}

{{/* What the receiver reads. */}}
{{- define "kafka-client-telemetry.gateway.config" -}}
{{- $listeners := list -}}
{{- range .Values.gateway.brokers -}}
{{- $listeners = append $listeners (include "kafka-client-telemetry.gateway.listener" (dict "root" $ "broker" .) | fromYaml) -}}
{{- end -}}
{{ include "kafka-client-telemetry.receiverConfig" (dict "root" . "listeners" $listeners) }}
{{- end -}}

{{- define "kafka-client-telemetry.gateway.graceSeconds" -}}
{{- $least := add .Values.gateway.preStopSeconds (include "kafka-client-telemetry.drainSeconds" .) -}}
{{- .Values.gateway.terminationGracePeriodSeconds | default (add $least 10) | int -}}
{{- end -}}
