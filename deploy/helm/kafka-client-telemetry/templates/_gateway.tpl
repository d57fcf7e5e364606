{{/* Receivers in front of brokers: one workload, whose pods have a listener for each broker. */}}

{{/* The listener in front of brokers whose addresses are rewritten, as YAML. */}}
{{- define "kafka-client-telemetry.gateway.rewriteListener" -}}
{{- $gateway := .Values.gateway -}}
{{- $rewrite := dict "host" $gateway.rewrite.host "nodes" (int $gateway.rewrite.nodes) -}}
{{- with $gateway.rewrite.firstPort }}{{ $_ := set $rewrite "first_port" (int .) }}{{ end -}}
{{- $broker := mergeOverwrite (deepCopy (.Values.config.broker | default dict)) ($gateway.listener.broker | default dict) (dict "id" "auto") -}}
{{- $own := dict "bind" (printf "%s:%d" $gateway.bindAddress (int $gateway.rewrite.port)) "upstream" $gateway.rewrite.upstream "addresses" "rewrite" "rewrite" $rewrite "broker" $broker -}}
{{- toYaml (mergeOverwrite (deepCopy $gateway.listener) $own) -}}
{{- end -}}

{{/* The gateway's ports, as YAML: name, port and perhaps nodePort of each. */}}
{{- define "kafka-client-telemetry.gateway.ports" -}}
{{- $ports := list -}}
{{- range .Values.gateway.brokers -}}
{{- $port := dict "name" (printf "broker-%d" (int .id)) "port" (int .port) -}}
{{- with .nodePort }}{{ $_ := set $port "nodePort" (int .) }}{{ end -}}
{{- $ports = append $ports $port -}}
{{- end -}}
{{- with .Values.gateway.rewrite -}}
{{- if .upstream -}}
{{- $ports = append $ports (dict "name" "bootstrap" "port" (int .port)) -}}
{{- if .firstPort -}}
{{- range $node := until (int .nodes) -}}
{{- $ports = append $ports (dict "name" (printf "node-%d" $node) "port" (add $.Values.gateway.rewrite.firstPort $node | int)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $ports -}}
{{- end -}}

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
{{- if .Values.gateway.rewrite.upstream -}}
{{- $listeners = append $listeners (include "kafka-client-telemetry.gateway.rewriteListener" . | fromYaml) -}}
{{- end -}}
{{ include "kafka-client-telemetry.receiverConfig" (dict "root" . "pods" (include "kafka-client-telemetry.partName" (dict "root" . "suffix" "gateway-pods")) "listeners" $listeners) }}
{{- end -}}

{{- define "kafka-client-telemetry.gateway.graceSeconds" -}}
{{- $least := add .Values.gateway.preStopSeconds (include "kafka-client-telemetry.drainSeconds" .) -}}
{{- .Values.gateway.terminationGracePeriodSeconds | default (add $least 10) | int -}}
{{- end -}}
