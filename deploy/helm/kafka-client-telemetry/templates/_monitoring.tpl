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
{{- $plugin := dict "port" "prometheus" "path" "/metrics" "honorLabels" true -}}
{{- $endpoints = append $endpoints (merge $plugin (include "kafka-client-telemetry.webLogin" $root.Values.monitoring.plugin | fromYaml)) -}}
{{- end -}}
{{- include "kafka-client-telemetry.endpointList" (dict "endpoints" $endpoints "monitor" .monitor) -}}
{{- end -}}

{{/* What Prometheus scrapes of the roll-up: (dict "root" $ "monitor" .Values.monitoring.podMonitor). */}}
{{- define "kafka-client-telemetry.rollup.endpoints" -}}
{{- $endpoint := merge (dict "port" "metrics" "path" "/metrics") (include "kafka-client-telemetry.webLogin" .root.Values.monitoring.rollup | fromYaml) -}}
{{- include "kafka-client-telemetry.endpointList" (dict "endpoints" (list $endpoint) "monitor" .monitor) -}}
{{- end -}}

{{/* How Prometheus connects to an endpoint with a web_config_file: (dict "tlsConfig" {} "basicAuth" {}). */}}
{{- define "kafka-client-telemetry.webLogin" -}}
{{- with .tlsConfig }}{{ dict "scheme" "https" "tlsConfig" . | toYaml }}{{ end }}
{{ with .basicAuth }}{{ dict "basicAuth" . | toYaml }}{{ end }}
{{- end -}}

{{/* The entry of the plugin `prometheus` that is scraped, as YAML; empty without one. */}}
{{- define "kafka-client-telemetry.scrapedPlugin" -}}
{{- range $index, $plugin := .Values.config.plugins -}}
{{- if and (eq .type "prometheus") .bind }}{{ set (deepCopy $plugin) "field" (printf "config.plugins[%d]" $index) | toYaml }}{{ end -}}
{{- end -}}
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
