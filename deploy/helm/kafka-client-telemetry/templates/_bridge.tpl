{{/* Receivers of bridges, the plugins in brokers: pods that brokers connect to, and no client. */}}

{{/* The Secrets that they mount, as YAML, in the form of `secretMounts`. */}}
{{- define "kafka-client-telemetry.bridge.mounts" -}}
{{- $bridge := .Values.bridge -}}
- secretName: {{ $bridge.token.secretName }}
  mountPath: /run/secrets/kafka-telemetry/bridge-token
  items: [{key: {{ $bridge.token.key }}, path: token}]
- secretName: {{ $bridge.tls.secretName }}
  mountPath: /run/secrets/kafka-telemetry/bridge-tls
{{- end -}}

{{/* What the receiver reads. */}}
{{- define "kafka-client-telemetry.bridge.config" -}}
{{- $bridge := .Values.bridge -}}
{{- $tls := dict "cert_file" "/run/secrets/kafka-telemetry/bridge-tls/tls.crt" "key_file" "/run/secrets/kafka-telemetry/bridge-tls/tls.key" -}}
{{- $own := dict "bind" (printf "%s:%d" $bridge.bindAddress (int $bridge.port)) "token" (dict "file" "/run/secrets/kafka-telemetry/bridge-token/token") "tls" $tls -}}
{{ include "kafka-client-telemetry.receiverConfig" (dict "root" . "pods" (include "kafka-client-telemetry.partName" (dict "root" . "suffix" "bridge")) "listeners" list "bridge" $own) }}
{{- end -}}

{{- define "kafka-client-telemetry.bridge.graceSeconds" -}}
{{- $least := include "kafka-client-telemetry.drainSeconds" . -}}
{{- .Values.bridge.terminationGracePeriodSeconds | default (add $least 10) | int -}}
{{- end -}}
