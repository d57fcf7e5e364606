{{/* What Prometheus scrapes: (dict "root" $ "monitor" .Values.monitoring.podMonitor). */}}
{{- define "kafka-client-telemetry.endpoints" -}}
{{- $root := .root -}}
{{- $own := dict "port" "rest" "path" "/metrics" "scheme" (include "kafka-client-telemetry.restScheme" $root | lower) -}}
{{- with $root.Values.monitoring.tlsConfig }}{{ $_ := set $own "tlsConfig" . }}{{ end -}}
{{- with $root.Values.monitoring.bearerToken -}}
{{- if .secretName -}}
{{- $_ := set $own "authorization" (dict "type" "Bearer" "credentials" (dict "name" .secretName "key" .key)) -}}
{{- end -}}
{{- end -}}
{{- $endpoints := list $own -}}
{{- if include "kafka-client-telemetry.prometheusPort" $root -}}
{{- /* The plugin's series have the clients' own job and instance. */ -}}
{{- $endpoints = append $endpoints (dict "port" "prometheus" "path" "/metrics" "honorLabels" true) -}}
{{- end -}}
{{- include "kafka-client-telemetry.endpointList" (dict "endpoints" $endpoints "monitor" .monitor) -}}
{{- end -}}

{{/* What Prometheus scrapes of the roll-up: (dict "monitor" .Values.monitoring.podMonitor). */}}
{{- define "kafka-client-telemetry.rollup.endpoints" -}}
{{- include "kafka-client-telemetry.endpointList" (dict "endpoints" (list (dict "port" "metrics" "path" "/metrics")) "monitor" .monitor) -}}
{{- end -}}

{{- define "kafka-client-telemetry.endpointList" -}}
{{- range .endpoints }}
- {{ toYaml . | nindent 2 | trim }}
  interval: {{ $.monitor.interval }}
  scrapeTimeout: {{ $.monitor.scrapeTimeout }}
  {{- with $.monitor.relabelings }}
  relabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $.monitor.metricRelabelings }}
  metricRelabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}
