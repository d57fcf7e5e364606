{{/* The example's broker: Apache Kafka's image, configured by its variables. */}}

{{- define "kafka-client-telemetry.example.name" -}}
{{- include "kafka-client-telemetry.ownerName" (dict "root" . "suffix" "broker") -}}
{{- end -}}

{{/* The domain of the pods, by which controllers find each other. */}}
{{- define "kafka-client-telemetry.example.domain" -}}
{{- printf "%s.%s.svc.%s" (include "kafka-client-telemetry.partName" (dict "root" . "suffix" "brokers")) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- define "kafka-client-telemetry.example.graceSeconds" -}}
{{- $least := add .Values.exampleBroker.shutdownSeconds (include "kafka-client-telemetry.drainSeconds" .) -}}
{{- .Values.exampleBroker.terminationGracePeriodSeconds | default (add $least 10) | int -}}
{{- end -}}

{{/* Clients reach brokers by sidecars alone: the broker's own listeners for them are on loopback, and what is advertised is the sidecar's port. */}}
{{- define "kafka-client-telemetry.example.env" -}}
{{- $domain := include "kafka-client-telemetry.example.domain" . -}}
{{- /* The Service of this broker alone has its pod's name. */ -}}
{{- $host := printf "$(POD_NAME).%s.svc.%s" .Release.Namespace .Values.clusterDomain -}}
{{- $listeners := list "INTERNAL://:9094" "CONTROLLER://:9093" -}}
{{- $advertised := list (printf "INTERNAL://%s:9094" $host) -}}
{{- $protocols := list "INTERNAL:PLAINTEXT" "CONTROLLER:PLAINTEXT" -}}
{{- range .Values.config.listeners -}}
{{- $listeners = append $listeners (printf "%s://%s" .name .upstream) -}}
{{- $advertised = append $advertised (printf "%s://%s:%s" .name $host (include "kafka-client-telemetry.port" .bind)) -}}
{{- $protocols = append $protocols (printf "%s:PLAINTEXT" .name) -}}
{{- end -}}
{{- $voters := list -}}
{{- range until (int .Values.exampleBroker.replicas) -}}
{{- $voters = append $voters (printf "%d@%s-%d.%s:9093" . (include "kafka-client-telemetry.example.name" $) . $domain) -}}
{{- end -}}
{{- $replicas := int .Values.exampleBroker.replicas -}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: CLUSTER_ID, value: {{ .Values.exampleBroker.clusterId | quote }}}
- {name: KAFKA_NODE_ID, valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}}
- {name: KAFKA_PROCESS_ROLES, value: "broker,controller"}
- {name: KAFKA_CONTROLLER_QUORUM_VOTERS, value: {{ join "," $voters | quote }}}
- {name: KAFKA_CONTROLLER_LISTENER_NAMES, value: CONTROLLER}
- {name: KAFKA_INTER_BROKER_LISTENER_NAME, value: INTERNAL}
- {name: KAFKA_LISTENERS, value: {{ join "," $listeners | quote }}}
- {name: KAFKA_ADVERTISED_LISTENERS, value: {{ join "," $advertised | quote }}}
- {name: KAFKA_LISTENER_SECURITY_PROTOCOL_MAP, value: {{ join "," $protocols | quote }}}
- {name: KAFKA_LOG_DIRS, value: /var/lib/kafka/data/log}
- {name: KAFKA_DEFAULT_REPLICATION_FACTOR, value: "{{ min $replicas 3 }}"}
- {name: KAFKA_MIN_INSYNC_REPLICAS, value: "{{ ternary 2 1 (gt $replicas 1) }}"}
- {name: KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR, value: "{{ min $replicas 3 }}"}
- {name: KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR, value: "{{ min $replicas 3 }}"}
- {name: KAFKA_TRANSACTION_STATE_LOG_MIN_ISR, value: "{{ ternary 2 1 (gt $replicas 1) }}"}
- {name: KAFKA_HEAP_OPTS, value: {{ .Values.exampleBroker.heap | quote }}}
{{- with .Values.exampleBroker.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
