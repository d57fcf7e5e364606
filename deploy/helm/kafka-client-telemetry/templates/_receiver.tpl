{{/* The receiver's container, of sidecars and of gateways: its configuration, ports, probes, volumes. */}}

{{/* The port of `host:port`. */}}
{{- define "kafka-client-telemetry.port" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end -}}

{{- define "kafka-client-telemetry.restPort" -}}
{{- include "kafka-client-telemetry.port" .Values.config.rest.bind -}}
{{- end -}}

{{/* The port that the plugin `prometheus` is scraped at; empty without it. */}}
{{- define "kafka-client-telemetry.prometheusPort" -}}
{{- range .Values.config.plugins -}}
{{- if and (eq .type "prometheus") .bind -}}{{- include "kafka-client-telemetry.port" .bind -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kafka-client-telemetry.restScheme" -}}
{{- if .Values.config.rest.tls }}HTTPS{{ else }}HTTP{{ end -}}
{{- end -}}

{{/* Where the container's own command line finds the REST API; a certificate is for no address. */}}
{{- define "kafka-client-telemetry.restUrl" -}}
{{- $host := trimSuffix (printf ":%s" (include "kafka-client-telemetry.restPort" .)) .Values.config.rest.bind -}}
{{- $near := .Values.config.rest.tls | empty | ternary (get (dict "0.0.0.0" "127.0.0.1" "[::]" "[::1]") $host | default $host) "localhost" -}}
{{- printf "%s://%s:%s" (include "kafka-client-telemetry.restScheme" . | lower) $near (include "kafka-client-telemetry.restPort" .) -}}
{{- end -}}

{{- define "kafka-client-telemetry.drainSeconds" -}}
{{- include "kafka-client-telemetry.seconds" (dig "timeout_s" 8 (.Values.config.drain | default dict)) -}}
{{- end -}}

{{/* Seconds of a setting that ends in `_s`: a number, or text such as `2m`. */}}
{{- define "kafka-client-telemetry.seconds" -}}
{{- $units := dict "ms" 0.001 "s" 1 "m" 60 "h" 3600 "d" 86400 -}}
{{- include "kafka-client-telemetry.setting" (dict "value" . "units" $units) | float64 | ceil | int -}}
{{- end -}}

{{/* Bytes of a setting that ends in `_bytes`: a number, or text such as `64MiB`. */}}
{{- define "kafka-client-telemetry.settingBytes" -}}
{{- $units := dict "B" 1 "kB" 1000 "MB" 1000000 "GB" 1000000000 "TB" 1000000000000 "KiB" 1024 "MiB" 1048576 "GiB" 1073741824 "TiB" 1099511627776 -}}
{{- include "kafka-client-telemetry.setting" (dict "value" . "units" $units) | float64 | int64 -}}
{{- end -}}

{{/* The number of a setting: (dict "value" "64MiB" "units" (dict "MiB" 1048576)). */}}
{{- define "kafka-client-telemetry.setting" -}}
{{- if kindIs "string" .value -}}
{{- mulf (regexFind "^[0-9.]+" .value | float64) (get .units (regexFind "[A-Za-z]+$" .value)) -}}
{{- else -}}
{{- .value -}}
{{- end -}}
{{- end -}}

{{/* Bytes of a quantity, such as `2Gi`, `1.5G` or a number. */}}
{{- define "kafka-client-telemetry.bytes" -}}
{{- $text := kindIs "string" . | ternary . (int64 . | toString) -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- $unit := trimPrefix $number $text -}}
{{- $power := index (dict "" 0 "m" -1 "k" 1 "M" 2 "G" 3 "T" 4 "P" 5 "E" 6) (trimSuffix "i" $unit) -}}
{{- $bytes := float64 $number -}}
{{- range until (int $power) }}{{ $bytes = mulf $bytes (hasSuffix "i" $unit | ternary 1024 1000) }}{{ end -}}
{{- if eq $power -1 }}{{ $bytes = divf $bytes 1000 }}{{ end -}}
{{- int64 $bytes -}}
{{- end -}}

{{/* The file of usage; on the data volume unless `config` names another place. */}}
{{- define "kafka-client-telemetry.usagePath" -}}
{{- (.Values.config.usage | default dict).path | default "usage.db" -}}
{{- end -}}

{{/* Bytes that usage and the plugins may take of the data volume, by their bounds: the rows of all days, a spool for each plugin that has one, and what spool_files keeps there. */}}
{{- define "kafka-client-telemetry.dataBytes" -}}
{{- $sum := 0 -}}
{{- if include "kafka-client-telemetry.onData" (dict "root" . "path" (include "kafka-client-telemetry.usagePath" .)) -}}
{{- $usage := .Values.config.usage | default dict -}}
{{- /* A row takes about 100 bytes; the page that holds it is not always full. */ -}}
{{- $sum = mul 128 (int64 ($usage.days | default 400)) (int64 ($usage.max_rows_per_day | default 10000)) -}}
{{- end -}}
{{- range .Values.config.plugins -}}
{{- $spool := .spool | default dict -}}
{{- if and (ne (.delivery | default "spool_when_behind") "memory") (include "kafka-client-telemetry.onData" (dict "root" $ "path" ($spool.path | default "spool"))) -}}
{{- $sum = add $sum ($spool.max_bytes | default 1073741824 | include "kafka-client-telemetry.settingBytes" | int64) -}}
{{- end -}}
{{- if and (eq .type "spool_files") (include "kafka-client-telemetry.onData" (dict "root" $ "path" .path)) -}}
{{- $sum = add $sum (.max_bytes | default 10737418240 | include "kafka-client-telemetry.settingBytes" | int64) -}}
{{- end -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* Whether a path is on the data volume, and not on a further one: (dict "root" $ "path" "spool"); empty if not. */}}
{{- define "kafka-client-telemetry.onData" -}}
{{- $path := clean (isAbs .path | ternary .path (printf "/var/lib/kafka-telemetry/%s" .path)) -}}
{{- $on := hasPrefix "/var/lib/kafka-telemetry/" $path -}}
{{- range .root.Values.extraVolumeMounts -}}
{{- if hasPrefix (printf "%s/" (clean (.mountPath | default "/"))) (printf "%s/" $path) }}{{ $on = false }}{{ end -}}
{{- end -}}
{{- if $on }}true{{ end -}}
{{- end -}}

{{/* What the receiver reads: (dict "root" $ "pods" "the headless Service of its pods"), and "listeners" or "bridge" in place of those in `config`. */}}
{{- define "kafka-client-telemetry.receiverConfig" -}}
{{- $config := deepCopy .root.Values.config -}}
{{- if hasKey . "listeners" }}{{ $_ := set $config "listeners" .listeners }}{{ end -}}
{{- with .bridge }}{{ $_ := set $config "bridge" . }}{{ end -}}
{{- if .root.Values.subscriptions }}
{{- $_ := set $config "subscriptions" (dict "store" "file" "path" (include "kafka-client-telemetry.subscriptions.folder" .root)) -}}
{{- end -}}
{{- if .root.Values.owners }}
{{- $_ := set $config "owners" (dict "path" (include "kafka-client-telemetry.owners.folder" .root)) -}}
{{- end -}}
{{- $_ := set $config "usage" (merge (dict "path" (include "kafka-client-telemetry.usagePath" .root)) ($config.usage | default dict)) -}}
{{- $tokens := $config.rest.tokens | default list -}}
{{- range .root.Values.tokens -}}
{{- $tokens = append $tokens (dict "name" .name "role" .role "file" (printf "/run/secrets/kafka-telemetry/tokens/%s" .name)) -}}
{{- end -}}
{{- if not (or $tokens $config.rest.clients) -}}
{{- /* Off loopback somebody has to be named. This digest is of no token that anybody could know: nobody gets in. */ -}}
{{- $tokens = list (dict "name" "nobody" "role" "viewer" "sha256" (repeat 64 "0")) -}}
{{- end -}}
{{- with $tokens }}{{ $_ := set $config.rest "tokens" . }}{{ end -}}
{{- if and .pods (not $config.cluster) (include "kafka-client-telemetry.clusterToken" .root) -}}
{{- $members := printf "dns://%s.%s.svc:%s" .pods .root.Release.Namespace (include "kafka-client-telemetry.restPort" .root) -}}
{{- $cluster := dict "members" $members "token" (dict "file" "/run/secrets/kafka-telemetry/tokens/cluster") -}}
{{- if $config.rest.tls }}{{ $_ := set $cluster "tls" dict }}{{ end -}}
{{- $_ := set $config "cluster" $cluster -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Whether `tokens` has the one that receivers show each other; empty if not. */}}
{{- define "kafka-client-telemetry.clusterToken" -}}
{{- range .Values.tokens }}{{ if eq .name "cluster" }}true{{ end }}{{ end -}}
{{- end -}}

{{/* Receivers ask each other for their clients, if they have the token: a list of rules as YAML, for the pods of one component: (dict "root" $ "component" "gateway" "direction" "from"), or "to". */}}
{{- define "kafka-client-telemetry.memberPeers" -}}
{{- if include "kafka-client-telemetry.clusterToken" .root -}}
- {{ .direction }}: [{podSelector: {matchLabels: {{ include "kafka-client-telemetry.selectorLabels" (dict "root" .root "component" .component) | fromYaml | toJson }}}}]
  ports: [{protocol: TCP, port: {{ include "kafka-client-telemetry.restPort" .root }}}]
{{- end -}}
{{- end -}}

{{/* The container but for its name and kind: (dict "root" $ "ports" [...] "readiness" "/readyz" "env" [...] "dataVolume" "..." "dataSubPath" "..." "mounts" [Secrets of its own]). */}}
{{- define "kafka-client-telemetry.receiverContainer" -}}
{{ include "kafka-client-telemetry.receiverProgram" (merge (dict "args" (list "serve" "--config" "/etc/kafka-telemetry/config.yaml")) .) }}
ports:
  {{- range .ports }}
  - {name: {{ .name }}, containerPort: {{ int .port }}, protocol: TCP}
  {{- end }}
  - {name: rest, containerPort: {{ include "kafka-client-telemetry.restPort" .root }}, protocol: TCP}
  {{- with include "kafka-client-telemetry.prometheusPort" .root }}
  - {name: prometheus, containerPort: {{ . }}, protocol: TCP}
  {{- end }}
{{ include "kafka-client-telemetry.probes" (dict "root" .root "readiness" .readiness) | trim }}
{{- end -}}

{{/* What a container runs, with its files: (dict "root" $ "args" [...] "env" [...] "dataVolume" "..." "dataSubPath" "..." "mounts" [...]). */}}
{{- define "kafka-client-telemetry.receiverProgram" -}}
{{- $values := .root.Values -}}
image: {{ include "kafka-client-telemetry.image" (dict "root" .root "image" $values.image) }}
imagePullPolicy: {{ $values.image.pullPolicy }}
args:
  {{- toYaml .args | nindent 2 }}
workingDir: /var/lib/kafka-telemetry
{{- $url := list (dict "name" "KAFKA_TELEMETRY_URL" "value" (include "kafka-client-telemetry.restUrl" .root)) }}
{{- if eq (index $url 0).value "http://127.0.0.1:8642" }}{{ $url = list }}{{ end }}
{{- with concat (.env | default list) $url $values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
securityContext:
  {{- toYaml $values.containerSecurityContext | nindent 2 }}
volumeMounts:
  - {name: kafka-telemetry-config, mountPath: /etc/kafka-telemetry, readOnly: true}
  {{- if $values.subscriptions }}
  - {name: kafka-telemetry-subscriptions, mountPath: {{ include "kafka-client-telemetry.subscriptions.folder" .root }}, readOnly: true}
  {{- end }}
  {{- if $values.owners }}
  - {name: kafka-telemetry-owners, mountPath: {{ include "kafka-client-telemetry.owners.folder" .root }}, readOnly: true}
  {{- end }}
  - name: {{ .dataVolume | default "kafka-telemetry-data" }}
    mountPath: /var/lib/kafka-telemetry
    {{- with .dataSubPath }}
    subPath: {{ . }}
    {{- end }}
  - {name: kafka-telemetry-tmp, mountPath: /tmp}
  {{- if $values.tokens }}
  - {name: kafka-telemetry-tokens, mountPath: /run/secrets/kafka-telemetry/tokens, readOnly: true}
  {{- end }}
  {{- with include "kafka-client-telemetry.secretVolumeMounts" (dict "mounts" (concat $values.secretMounts (.mounts | default list))) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* (dict "root" $ "readiness" "/readyz"). Ports by number: of sidecars, not every Kubernetes finds a port by its name. */}}
{{- define "kafka-client-telemetry.probes" -}}
{{- range $kind, $path := dict "startup" "/livez" "liveness" "/livez" "readiness" (.readiness | default "/readyz") }}
{{ $kind }}Probe:
  httpGet: {path: {{ $path | quote }}, port: {{ include "kafka-client-telemetry.restPort" $.root }}, scheme: {{ include "kafka-client-telemetry.restScheme" $.root }}}
  {{- toYaml (index $.root.Values.probes $kind) | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Its volumes: (dict "root" $ "configMap" "..." "key" "config.yaml" "data" {} "mounts" [...]); "data" is the data volume's source, if it is not somewhere else. */}}
{{- define "kafka-client-telemetry.receiverVolumes" -}}
- name: kafka-telemetry-config
  configMap:
    name: {{ .configMap }}
    items: [{key: {{ .key }}, path: config.yaml}]
{{- if .root.Values.subscriptions }}
- name: kafka-telemetry-subscriptions
  configMap:
    name: {{ include "kafka-client-telemetry.subscriptions.configMapName" .root }}
{{- end }}
{{- if .root.Values.owners }}
- name: kafka-telemetry-owners
  configMap:
    name: {{ include "kafka-client-telemetry.owners.configMapName" .root }}
{{- end }}
{{- with .data }}
- name: kafka-telemetry-data
  {{- toYaml . | nindent 2 }}
{{- end }}
- name: kafka-telemetry-tmp
  # In memory, where the kernel refuses what is too much. On disk, the kubelet would evict the pod with its broker.
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- with .root.Values.tokens }}
- name: kafka-telemetry-tokens
  projected:
    sources:
      {{- range . }}
      - secret:
          name: {{ .secretName }}
          items: [{key: {{ .key }}, path: {{ .name }}}]
      {{- end }}
{{- end }}
{{ include "kafka-client-telemetry.secretVolumes" (dict "mounts" (concat .root.Values.secretMounts (.mounts | default list))) | trim }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
