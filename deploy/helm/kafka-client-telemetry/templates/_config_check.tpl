{{/* The hook in which the receiver checks its configurations. */}}

{{/* The parts whose configurations are checked, as YAML; empty without one. */}}
{{- define "kafka-client-telemetry.checkedParts" -}}
{{- $parts := list -}}
{{- if .Values.sidecar.enabled }}{{ $parts = append $parts "sidecar" }}{{ end -}}
{{- if .Values.gateway.enabled }}{{ $parts = append $parts "gateway" }}{{ end -}}
{{- if .Values.bridge.enabled }}{{ $parts = append $parts "bridge" }}{{ end -}}
{{- if and $parts .Values.configCheck.enabled }}{{ toYaml $parts }}{{ end -}}
{{- end -}}

{{/* The variables that have a value here, and a number for a sidecar's broker id: (dict "root" $ "part" "sidecar"). */}}
{{- define "kafka-client-telemetry.checkedEnv" -}}
{{- $env := list -}}
{{- if and (eq .part "sidecar") (ne .root.Values.sidecar.broker.idFrom "config") -}}
{{- $env = append $env (dict "name" "KAFKA_TELEMETRY_BROKER__ID" "value" "0") -}}
{{- end -}}
{{- range .root.Values.extraEnv -}}
{{- if hasKey . "value" }}{{ $env = append $env . }}{{ end -}}
{{- end -}}
{{- toYaml $env -}}
{{- end -}}

{{/* The values that a receiver's keys come from, as YAML. */}}
{{- define "kafka-client-telemetry.origins" -}}
{{- $origins := dict "" "config" -}}
{{- if .Values.subscriptions }}{{ $_ := set $origins "subscriptions" "subscriptions" }}{{ end -}}
{{- if .Values.owners }}{{ $_ := set $origins "owners" "owners" }}{{ end -}}
{{- $own := len (.Values.config.rest.tokens | default list) -}}
{{- range $index, $token := .Values.tokens -}}
{{- $_ := set $origins (printf "rest.tokens[%d]" (add $own $index)) (printf "tokens[%d]" $index) -}}
{{- end -}}
{{- toYaml $origins -}}
{{- end -}}

{{- define "kafka-client-telemetry.sidecar.origins" -}}
{{- include "kafka-client-telemetry.origins" . -}}
{{- end -}}

{{- define "kafka-client-telemetry.bridge.origins" -}}
{{- toYaml (merge (include "kafka-client-telemetry.origins" . | fromYaml) (dict "bridge" "bridge" "bridge.bind" "bridge.port")) -}}
{{- end -}}

{{- define "kafka-client-telemetry.gateway.origins" -}}
{{- $origins := include "kafka-client-telemetry.origins" . | fromYaml -}}
{{- $gateway := .Values.gateway -}}
{{- $_ := set $origins "listeners" "gateway.brokers" -}}
{{- range $index, $broker := $gateway.brokers -}}
{{- $listener := printf "listeners[%d]" $index -}}
{{- $place := printf "gateway.brokers[%d]" $index -}}
{{- $own := .listener | default dict -}}
{{- $_ := set $origins $listener (printf "%s.listener" $place) -}}
{{- range $key, $value := omit $gateway.listener "name" -}}
{{- if not (hasKey $own $key) }}{{ $_ := set $origins (printf "%s.%s" $listener $key) (printf "gateway.listener.%s" $key) }}{{ end -}}
{{- end -}}
{{- range $key, $name := dict "upstream" "upstream" "bind" "port" "broker.id" "id" -}}
{{- $_ := set $origins (printf "%s.%s" $listener $key) (printf "%s.%s" $place $name) -}}
{{- end -}}
{{- if not (hasKey $own "name") }}{{ $_ := set $origins (printf "%s.name" $listener) "gateway.listener.name" }}{{ end -}}
{{- end -}}
{{- if $gateway.rewrite.upstream -}}
{{- $listener := printf "listeners[%d]" (len $gateway.brokers) -}}
{{- $_ := set $origins $listener "gateway.listener" -}}
{{- range $key, $name := dict "upstream" "upstream" "bind" "port" "addresses" "upstream" "rewrite" "" "rewrite.host" "host" "rewrite.first_port" "firstPort" "rewrite.nodes" "nodes" -}}
{{- $_ := set $origins (printf "%s.%s" $listener $key) (printf "gateway.rewrite.%s" $name | trimSuffix ".") -}}
{{- end -}}
{{- end -}}
{{- toYaml $origins -}}
{{- end -}}
