{{/* Receivers in front of brokers: one StatefulSet for each, as a receiver speaks for one broker. */}}

{{/* The one listener of a broker's gateway: (dict "root" $ "broker" {...}), as YAML. */}}
{{- define "kafka-client-telemetry.gateway.listener" -}}
{{- $gateway := .root.Values.gateway -}}
{{- $own := dict "bind" (printf "%s:%d" $gateway.bindAddress (int .broker.port)) "upstream" .broker.upstream -}}
{{- toYaml (mergeOverwrite (deepCopy $gateway.listener) (deepCopy (.broker.listener | default dict)) $own) -}}
{{- end -}}

{{- define "kafka-client-telemetry.gateway.config" -}}
{{- $listener := include "kafka-client-telemetry.gateway.listener" . | fromYaml -}}
{{ include "kafka-client-telemetry.receiverConfig" (dict "root" .root "broker" (dict "id" (int .broker.id)) "listeners" (list $listener)) }}
{{- end -}}

{{/* Labels of one broker's pods. */}}
{{- define "kafka-client-telemetry.gateway.selectorLabels" -}}
{{ include "kafka-client-telemetry.selectorLabels" (dict "root" .root "component" "gateway") }}
kafka-client-telemetry/broker: {{ int .broker.id | quote }}
{{- end -}}

{{- define "kafka-client-telemetry.gateway.graceSeconds" -}}
{{- $least := add .Values.gateway.preStopSeconds (include "kafka-client-telemetry.drainSeconds" .) -}}
{{- .Values.gateway.terminationGracePeriodSeconds | default (add $least 10) | int -}}
{{- end -}}
