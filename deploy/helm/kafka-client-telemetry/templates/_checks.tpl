{{/* What values must fulfil together. Each mistake is one line: the field, its value, the fix. */}}

{{- define "kafka-client-telemetry.checks.receiver" -}}
{{- $config := .Values.config -}}
{{- $receivers := or .Values.sidecar.enabled .Values.gateway.enabled .Values.bridge.enabled -}}
{{- if $receivers -}}
{{- $loopback := "^(127\\.|localhost:|\\[::1\\])" -}}
{{- if regexMatch $loopback $config.rest.bind -}}
{{- fail (printf "config.rest.bind: %s: the kubelet and Prometheus ask from outside of the pod; bind 0.0.0.0:8642, or [::]:8642 with IPv6" $config.rest.bind) -}}
{{- end -}}
{{- range list "livez" "readyz" -}}
{{- if not (has . ($config.rest.open | default (list "livez" "readyz"))) -}}
{{- fail (printf "config.rest.open: %s: the kubelet asks without a token; add %s" (toJson $config.rest.open) .) -}}
{{- end -}}
{{- end -}}
{{- if eq (($config.rest.tls | default dict).client_auth | default "none") "required" -}}
{{- fail "config.rest.tls.client_auth: required: the kubelet shows no certificate; ask with requested" -}}
{{- end -}}
{{- range $index, $listener := .Values.sidecar.enabled | ternary $config.listeners list -}}
{{- include "kafka-client-telemetry.checks.port" (dict "port" (include "kafka-client-telemetry.port" $listener.bind) "field" (printf "config.listeners[%d].bind" $index)) -}}
{{- with ($listener.rewrite | default dict).first_port -}}
{{- include "kafka-client-telemetry.checks.port" (dict "port" (int .) "field" (printf "config.listeners[%d].rewrite.first_port" $index)) -}}
{{- end -}}
{{- end -}}
{{- include "kafka-client-telemetry.checks.port" (dict "port" (include "kafka-client-telemetry.restPort" .) "field" "config.rest.bind") -}}
{{- range $index, $plugin := $config.plugins -}}
{{- if and (eq .type "prometheus") (regexMatch $loopback (.bind | default "")) -}}
{{- fail (printf "config.plugins[%d].bind: %s: Prometheus asks from outside of the pod; bind 0.0.0.0:9464, or [::]:9464 with IPv6" $index .bind) -}}
{{- end -}}
{{- end -}}
{{- with include "kafka-client-telemetry.prometheusPort" . -}}
{{- include "kafka-client-telemetry.checks.port" (dict "port" . "field" "config.plugins: bind of type prometheus") -}}
{{- end -}}
{{- end -}}
{{- include "kafka-client-telemetry.checks.secrets" (dict "field" "config" "key" "" "value" $config "fix" "give {file: PATH}, and mount its Secret by secretMounts") -}}
{{- if and .Values.subscriptions $config.subscriptions -}}
{{- fail (printf "config.subscriptions: %s: `subscriptions` is given too, and the chart selects the store for it; leave one of them out" (toJson $config.subscriptions)) -}}
{{- end -}}
{{- if and .Values.owners $config.owners -}}
{{- fail (printf "config.owners: %s: `owners` is given too, and the chart writes its folder; leave one of them out" (toJson $config.owners)) -}}
{{- end -}}
{{- $teams := dict -}}
{{- range $index, $owner := kindIs "slice" .Values.owners | ternary .Values.owners list -}}
{{- with get $teams .team -}}
{{- fail (printf "owners[%d].team: %s: that of owners[%s].team too; give each its own" $index $owner.team .) -}}
{{- end -}}
{{- $_ := set $teams .team (toString $index) -}}
{{- end -}}
{{- $names := dict -}}
{{- range $index, $subscription := kindIs "slice" .Values.subscriptions | ternary .Values.subscriptions list -}}
{{- with get $names .name -}}
{{- fail (printf "subscriptions[%d].name: %s: that of subscriptions[%s].name too; give each its own" $index $subscription.name .) -}}
{{- end -}}
{{- $_ := set $names .name (toString $index) -}}
{{- end -}}
{{- end -}}

{{/* Fails for a port that the receiver has no right to: (dict "port" "8642" "field" "..."). */}}
{{- define "kafka-client-telemetry.checks.port" -}}
{{- if or (lt (int .port) 1024) (gt (int .port) 65535) -}}
{{- fail (printf "%s: %s: the receiver has no right to ports below 1024; give 1024 to 65535" .field .port) -}}
{{- end -}}
{{- end -}}

{{/* Fails where the bounds of usage and plugins are more than the data volume has room for: (dict "root" $ "field" "gateway.persistence.size" "size" "5Gi"). */}}
{{- define "kafka-client-telemetry.checks.data" -}}
{{- range $index, $plugin := .root.Values.config.plugins -}}
{{- if and (eq .type "spool_files") (hasKey . "max_bytes") (not .max_bytes) (include "kafka-client-telemetry.onData" (dict "root" $.root "path" .path)) -}}
{{- fail (printf "config.plugins[%d].max_bytes: null: without a bound its files fill the data volume; give one, or a path on a volume of extraVolumes" $index) -}}
{{- end -}}
{{- end -}}
{{- /* 64 MiB for subscriptions and the file that spool_files is writing. */ -}}
{{- $least := include "kafka-client-telemetry.dataBytes" .root | int64 | add 67108864 -}}
{{- if lt (include "kafka-client-telemetry.bytes" .size | int64) $least -}}
{{- fail (printf "%s: %s: config may need %dMi: spool.max_bytes of each plugin (1Gi by default), max_bytes of spool_files (10Gi by default), 128 bytes for each of usage.days and usage.max_rows_per_day (489Mi by default), and 64Mi; give so much, smaller bounds, or delivery: memory" .field (toString .size) (div (add $least 1048575) 1048576)) -}}
{{- end -}}
{{- end -}}

{{/* Fails where a secret stands as text, at any depth: it would land in a ConfigMap. (dict "field" "config" "value" .Values.config "fix" "give ..."); "key" is that of the value. */}}
{{- define "kafka-client-telemetry.checks.secrets" -}}
{{- if kindIs "map" .value -}}
{{- range $key, $value := .value -}}
{{- include "kafka-client-telemetry.checks.secrets" (dict "field" (printf "%s.%s" $.field $key) "key" $key "value" $value "fix" $.fix) -}}
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- range $index, $value := .value -}}
{{- include "kafka-client-telemetry.checks.secrets" (dict "field" (printf "%s[%d]" $.field $index) "key" $.key "value" $value "fix" $.fix) -}}
{{- end -}}
{{- else if kindIs "string" .value -}}
{{- /* Where Hadoop finds its credentials, and Spark its Secrets, is none. */ -}}
{{- $named := and (regexMatch "(?i)(password|secret|token$|authorization|cookie|api.?key|jaas|credential|\\.key$)" .key) (not (regexMatch "(?i)provider(\\.path)?$|^spark\\.kubernetes\\.(driver|executor)\\.secret" .key)) -}}
{{- if or $named (regexMatch "://[^/\\s]*@|^[^/\\s:@]+:[^/\\s@]+@|PRIVATE KEY-----" .value) -}}
{{- fail (printf "%s: a secret as text would land in a ConfigMap; %s" .field .fix) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kafka-client-telemetry.checks.sidecar" -}}
{{- $broker := .Values.sidecar.broker -}}
{{- if .Values.sidecar.enabled -}}
{{- $given := hasKey (.Values.config.broker | default dict) "id" -}}
{{- range .Values.extraEnv -}}
{{- if eq .name "KAFKA_TELEMETRY_BROKER__ID" }}{{ $given = true }}{{ end -}}
{{- end -}}
{{- if and (ne $broker.idFrom "config") $given -}}
{{- fail (printf "sidecar.broker.idFrom: %s: a broker id is given in config or extraEnv too; leave that out, or set sidecar.broker.idFrom to config" $broker.idFrom) -}}
{{- end -}}
{{- if and (has $broker.idFrom (list "podLabel" "podAnnotation")) (not $broker.key) -}}
{{- fail (printf "sidecar.broker.key: \"\": required with idFrom %s; give the key that has the broker's node id" $broker.idFrom) -}}
{{- end -}}
{{- /* A volume of another chart's has the size that it gives it. */ -}}
{{- if or .Values.exampleBroker.enabled (not .Values.sidecar.data.volume) -}}
{{- include "kafka-client-telemetry.checks.data" (dict "root" . "field" "sidecar.data.sizeLimit" "size" .Values.sidecar.data.sizeLimit) -}}
{{- end -}}
{{- end -}}
{{- if .Values.exampleBroker.enabled -}}
{{- if not .Values.sidecar.enabled -}}
{{- fail "sidecar.enabled: false: exampleBroker's pods have sidecars; set it to true" -}}
{{- end -}}
{{- if not .Values.config.listeners -}}
{{- fail "config.listeners: []: exampleBroker's clients connect to its sidecars; give name, bind and upstream" -}}
{{- end -}}
{{- range $index, $listener := .Values.config.listeners -}}
{{- if hasPrefix "SASL" ($listener.security_protocol | default "PLAINTEXT") -}}
{{- fail (printf "config.listeners[%d].security_protocol: %s: exampleBroker has no logins; give PLAINTEXT or SSL, or bring a broker of your own" $index $listener.security_protocol) -}}
{{- end -}}
{{- end -}}
{{- $least := add .Values.exampleBroker.shutdownSeconds (include "kafka-client-telemetry.drainSeconds" .) -}}
{{- if lt (int (include "kafka-client-telemetry.example.graceSeconds" .)) (int $least) -}}
{{- fail (printf "exampleBroker.terminationGracePeriodSeconds: %d: less than shutdownSeconds and config.drain.timeout_s; give %d at least" (int .Values.exampleBroker.terminationGracePeriodSeconds) $least) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kafka-client-telemetry.checks.gateway" -}}
{{- if .Values.gateway.enabled -}}
{{- if not (or .Values.gateway.brokers .Values.gateway.rewrite.upstream) -}}
{{- fail "gateway.brokers: []: a gateway needs the brokers that it stands before; give id, upstream and port of each, or gateway.rewrite" -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if regexMatch "^KAFKA_TELEMETRY_(BROKER__ID|LISTENERS)" .name -}}
{{- fail (printf "extraEnv: %s: a gateway's listeners and node ids come from gateway.brokers; leave it out, and give them there" .name) -}}
{{- end -}}
{{- end -}}
{{- include "kafka-client-telemetry.checks.data" (dict "root" . "field" "gateway.persistence.size" "size" .Values.gateway.persistence.size) -}}
{{- $autoscaling := .Values.gateway.autoscaling -}}
{{- if and $autoscaling.enabled (lt (int $autoscaling.maxReplicas) (int $autoscaling.minReplicas)) -}}
{{- fail (printf "gateway.autoscaling.maxReplicas: %d: less than minReplicas; give %d at least" (int $autoscaling.maxReplicas) (int $autoscaling.minReplicas)) -}}
{{- end -}}
{{- if include "kafka-client-telemetry.workload.isScaled" (dict "root" . "part" "gateway") -}}
{{- if and (not .Values.subscriptions) (eq (dig "store" "sqlite" (.Values.config.subscriptions | default dict)) "sqlite") -}}
{{- $field := $autoscaling.enabled | ternary "gateway.autoscaling.enabled: true" "gateway.replicas: null" -}}
{{- fail (printf "%s: a new pod would have no subscriptions and ask clients for nothing; give them in `subscriptions`, or set config.subscriptions.store to kafka" $field) -}}
{{- end -}}
{{- end -}}
{{- $ids := dict -}}
{{- if .Values.gateway.rewrite.upstream -}}
{{- if eq .Values.gateway.service.type "NodePort" -}}
{{- fail "gateway.service.type: NodePort: clients get the ports of gateway.rewrite, which a node does not have; take ClusterIP or LoadBalancer" -}}
{{- end -}}
{{- end -}}
{{- range $index, $broker := .Values.gateway.brokers -}}
{{- $field := printf "gateway.brokers[%d]" $index -}}
{{- if and .nodePort (eq $.Values.gateway.service.type "ClusterIP") -}}
{{- fail (printf "%s.nodePort: %d: a Service of type ClusterIP has none; leave it out, or set gateway.service.type to NodePort or LoadBalancer" $field (int .nodePort)) -}}
{{- end -}}
{{- with get $ids (int .id | toString) -}}
{{- fail (printf "%s.id: %d: the id of %s too; give each broker's own node.id" $field (int $broker.id) .) -}}
{{- end -}}
{{- $_ := set $ids (int .id | toString) $field -}}
{{- end -}}
{{- $least := add .Values.gateway.preStopSeconds (include "kafka-client-telemetry.drainSeconds" .) -}}
{{- if lt (int (include "kafka-client-telemetry.gateway.graceSeconds" .)) (int $least) -}}
{{- fail (printf "gateway.terminationGracePeriodSeconds: %d: less than preStopSeconds and config.drain.timeout_s; give %d at least" (int .Values.gateway.terminationGracePeriodSeconds) $least) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kafka-client-telemetry.checks.bridge" -}}
{{- if .Values.bridge.enabled -}}
{{- range $name, $fix := dict "token" "openssl rand -hex 32 > token; kubectl create secret generic telemetry-bridge-token --from-file=token" "tls" "its certificate must be for the name of the Service" -}}
{{- if not (index $.Values.bridge $name).secretName -}}
{{- fail (printf "bridge.%s.secretName: \"\": required, because brokers connect over the network; name an existing Secret (%s)" $name $fix) -}}
{{- end -}}
{{- end -}}
{{- if .Values.config.bridge -}}
{{- fail "config.bridge: the chart writes it with bridge.enabled; leave it out" -}}
{{- end -}}
{{- include "kafka-client-telemetry.checks.data" (dict "root" . "field" "bridge.persistence.size" "size" .Values.bridge.persistence.size) -}}
{{- end -}}
{{- end -}}

{{- define "kafka-client-telemetry.checks.rollup" -}}
{{- $rollup := .Values.rollup -}}
{{- $config := $rollup.config -}}
{{- if $rollup.enabled -}}
{{- if hasKey $config "postgres" -}}
{{- fail "rollup.config.postgres: a URL with its password would land in a ConfigMap; leave it out, and name a Secret in rollup.postgres.secretName" -}}
{{- end -}}
{{- if not $rollup.postgres.secretName -}}
{{- fail "rollup.postgres.secretName: \"\": required: the Secret that has PostgreSQL's URL; kubectl create secret generic telemetry-postgres --from-literal=url=postgresql://..." -}}
{{- end -}}
{{- include "kafka-client-telemetry.checks.secrets" (dict "field" "rollup.config" "key" "" "value" (omit $config "spark") "fix" "give {file: PATH}, and mount its Secret by rollup.secretMounts") -}}
{{- range $field, $conf := dict "rollup.config.spark" ($config.spark | default dict) "rollup.sparkApplication.sparkConf" $rollup.sparkApplication.sparkConf -}}
{{- include "kafka-client-telemetry.checks.secrets" (dict "field" $field "key" "" "value" $conf "fix" "give it as a variable of a Secret, by rollup.envFrom or rollup.extraEnv") -}}
{{- end -}}
{{- if and (ne $config.source "kafka") (not (or $rollup.spool.existingClaim $rollup.extraVolumeMounts)) -}}
{{- fail "rollup.spool.existingClaim: \"\": with rollup.config.source spool_files the roll-up has to see the receivers' folder; name the claim that they write to" -}}
{{- end -}}
{{- with ($config.metrics | default dict).bind -}}
{{- if regexMatch "^(127\\.|localhost:|\\[::1\\])" . -}}
{{- fail (printf "rollup.config.metrics.bind: %s: Prometheus asks from outside of the pod; bind 0.0.0.0:8643, or [::]:8643 with IPv6" .) -}}
{{- end -}}
{{- $port := include "kafka-client-telemetry.port" . -}}
{{- if has $port (list "7078" "7079") -}}
{{- fail (printf "rollup.config.metrics.bind: %s: the port is that of Spark's driver or its block manager; give another one" $port) -}}
{{- end -}}
{{- include "kafka-client-telemetry.checks.port" (dict "port" $port "field" "rollup.config.metrics.bind") -}}
{{- end -}}
{{- if not $config.checkpoint -}}
{{- fail "rollup.config.checkpoint: required; give /var/lib/kafka-telemetry/checkpoint, or a URL such as s3a://bucket/checkpoint" -}}
{{- end -}}
{{- if and (not $rollup.persistence.enabled) (not (regexMatch "^[a-z0-9]+://" $config.checkpoint)) (not $rollup.extraVolumeMounts) -}}
{{- fail (printf "rollup.persistence.enabled: false: the checkpoint %s would be lost with the pod; set it to true, or give rollup.config.checkpoint as a URL such as s3a://bucket/checkpoint" $config.checkpoint) -}}
{{- end -}}
{{- if and $rollup.submit.enabled (hasPrefix "k8s://" $rollup.submit.master) -}}
{{- fail (printf "rollup.submit.master: %s: the pod has no right to start executors, and no image for them; take rollup.kind SparkApplication" $rollup.submit.master) -}}
{{- end -}}
{{- if and $rollup.submit.enabled (eq $rollup.kind "SparkApplication") -}}
{{- fail "rollup.submit.enabled: true: the Spark operator submits by itself; leave it out with rollup.kind SparkApplication" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Nothing but the file itself says whether it has TLS and logins: (dict "field" "..." "file" "..." "name" "plugin" "web" {}). */}}
{{- define "kafka-client-telemetry.checks.web" -}}
{{- $given := or .web.tlsConfig .web.basicAuth -}}
{{- if and .file (not $given) -}}
{{- fail (printf "monitoring.%s: {}: %s.web_config_file has TLS or logins; say in tlsConfig who signed the certificate and its name, and in basicAuth the Secrets of user and password" .name .field) -}}
{{- end -}}
{{- if and $given (not .file) -}}
{{- fail (printf "monitoring.%s: without %s.web_config_file the endpoint has neither TLS nor a login; leave tlsConfig and basicAuth out, or set the file" .name .field) -}}
{{- end -}}
{{- end -}}

{{- define "kafka-client-telemetry.checks.others" -}}
{{- $monitoring := .Values.monitoring -}}
{{- if and $monitoring.serviceMonitor.enabled $monitoring.podMonitor.enabled -}}
{{- fail "monitoring.podMonitor.enabled: true: with serviceMonitor everything would be scraped twice; enable one of them" -}}
{{- end -}}
{{- if or $monitoring.serviceMonitor.enabled $monitoring.podMonitor.enabled -}}
{{- $rollupAlone := and (include "kafka-client-telemetry.rollup.metricsPort" .) (not .Values.sidecar.enabled) -}}
{{- if not (or .Values.gateway.enabled .Values.bridge.enabled $rollupAlone (and .Values.sidecar.enabled (include "kafka-client-telemetry.sidecar.podSelector" .))) -}}
{{- fail "sidecar.podSelector: {}: nothing says which pods to scrape; give the labels of the broker's pods" -}}
{{- end -}}
{{- if not (or (has "metrics" (.Values.config.rest.open | default list)) $monitoring.bearerToken.secretName) -}}
{{- fail "monitoring.bearerToken.secretName: \"\": /metrics asks for a token; name its Secret, or add metrics to config.rest.open" -}}
{{- end -}}
{{- end -}}
{{- if and (or $monitoring.serviceMonitor.enabled $monitoring.podMonitor.enabled) .Values.config.rest.tls (not $monitoring.tlsConfig) -}}
{{- fail "monitoring.tlsConfig: {}: Prometheus asks by the pod's address; say who signed the certificate of config.rest.tls and its name, in ca and serverName" -}}
{{- end -}}
{{- if or $monitoring.serviceMonitor.enabled $monitoring.podMonitor.enabled -}}
{{- $plugin := include "kafka-client-telemetry.scrapedPlugin" . | fromYaml -}}
{{- include "kafka-client-telemetry.checks.web" (dict "field" ($plugin.field | default "config.plugins") "file" $plugin.web_config_file "name" "plugin" "web" $monitoring.plugin) -}}
{{- if .Values.rollup.enabled -}}
{{- $file := (.Values.rollup.config.metrics | default dict).web_config_file -}}
{{- include "kafka-client-telemetry.checks.web" (dict "field" "rollup.config.metrics" "file" $file "name" "rollup" "web" $monitoring.rollup) -}}
{{- end -}}
{{- end -}}
{{- with .Values.dashboards -}}
{{- if and .grafanaDashboards.enabled .configMaps.namespace (ne .configMaps.namespace $.Release.Namespace) -}}
{{- fail (printf "dashboards.configMaps.namespace: %s: a GrafanaDashboard reads its ConfigMap in the release's namespace; leave it empty" .configMaps.namespace) -}}
{{- end -}}
{{- end -}}
{{- range $name, $address := .Values.dashboards.links -}}
{{- with $address -}}
{{- include "kafka-client-telemetry.checks.link" (dict "field" (printf "dashboards.links.%s" $name) "address" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails where an address is none that a link may have: (dict "field" "dashboards.links.logs" "address" "https://..."). */}}
{{- define "kafka-client-telemetry.checks.link" -}}
{{- $placeholders := list "KAFKA_CLIENT_ID" "KAFKA_CLIENT_INSTANCE_ID" "KAFKA_GROUP_ID" "KAFKA_PRINCIPAL" "KAFKA_CLIENT_ADDRESS" -}}
{{- if not (regexMatch "^https?://" .address) -}}
{{- fail (printf "%s: %s: begin it with https:// or http://" .field .address) -}}
{{- end -}}
{{- /* A client must not choose the host by its name. */ -}}
{{- if not (regexMatch "^https?://[^/?#$@]+([/?#]|$)" .address) -}}
{{- fail (printf "%s: %s: give a host, without placeholders and without a login" .field .address) -}}
{{- end -}}
{{- if regexMatch "[$]" (regexReplaceAll (printf "[$]{(%s)}" (join "|" $placeholders)) .address "") -}}
{{- fail (printf "%s: %s: the placeholders are ${%s}; write another dollar as %%24" .field .address (join "}, ${" $placeholders)) -}}
{{- end -}}
{{- if regexMatch `["'\\<>\s]` .address -}}
{{- fail (printf "%s: %s: percent-encode blanks, quotes, backslashes and angle brackets: a quote is %%22" .field .address) -}}
{{- end -}}
{{- end -}}
