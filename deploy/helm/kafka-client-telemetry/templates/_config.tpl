{{/* What the receiver would refuse at its start, and a schema can't say. Each mistake is one line: the field, its value, the fix. */}}

{{/* The parts of the receiver's configuration that sidecars and gateways share. */}}
{{- define "kafka-client-telemetry.checks.config" -}}
{{- $config := .Values.config -}}
{{- include "kafka-client-telemetry.checks.address" (dict "field" "config.rest.bind" "value" $config.rest.bind) -}}
{{- $names := dict -}}
{{- range $field, $entries := dict "tokens" .Values.tokens "config.rest.tokens" ($config.rest.tokens | default list) "config.rest.clients" ($config.rest.clients | default list) -}}
{{- include "kafka-client-telemetry.checks.distinct" (dict "field" $field "entries" $entries "key" "name" "seen" $names) -}}
{{- end -}}
{{- include "kafka-client-telemetry.checks.distinct" (dict "field" "config.rest.tokens" "entries" ($config.rest.tokens | default list) "key" "sha256" "seen" dict) -}}
{{- include "kafka-client-telemetry.checks.distinct" (dict "field" "config.rest.clients" "entries" ($config.rest.clients | default list) "key" "subject" "seen" dict) -}}
{{- $telemetry := $config.telemetry | default dict -}}
{{- $most := $telemetry.max_bytes | default 1048576 | include "kafka-client-telemetry.settingBytes" | int64 -}}
{{- $inflated := $telemetry.max_inflated_bytes | default 2097152 | include "kafka-client-telemetry.settingBytes" | int64 -}}
{{- if lt $inflated $most -}}
{{- fail (printf "config.telemetry.max_inflated_bytes: %d: a push of telemetry.max_bytes may be uncompressed; give %d at least" $inflated $most) -}}
{{- end -}}
{{- range $index, $rule := ($telemetry.series | default dict).client_id_folding -}}
{{- $groups := include "kafka-client-telemetry.checks.groups" .pattern | int -}}
{{- range regexFindAll "\\\\[^0-9\\\\]|\\\\[0-9]" (.replacement | replace "\\\\" "") -1 -}}
{{- if or (not (regexMatch "[0-9]" .)) (gt (trimPrefix "\\" . | int) $groups) -}}
{{- fail (printf "config.telemetry.series.client_id_folding[%d].replacement: %s: no group of the pattern, which has %d; give one of these, or \\\\ for a backslash" $index . $groups) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "kafka-client-telemetry.checks.plugins" . -}}
{{- end -}}

{{/* The number of groups of a regular expression. */}}
{{- define "kafka-client-telemetry.checks.groups" -}}
{{- $plain := regexReplaceAll "\\[\\^?\\]?[^\\]]*\\]" (regexReplaceAll "\\\\." . "") "" -}}
{{- regexFindAll "\\((\\?P?<|[^?]|$)" $plain -1 | len -}}
{{- end -}}

{{/* Fails where two entries of a list have one value of a key: (dict "field" "config.rest.tokens" "entries" [...] "key" "name" "seen" {}). */}}
{{- define "kafka-client-telemetry.checks.distinct" -}}
{{- range $index, $entry := .entries -}}
{{- with get $entry $.key -}}
{{- $field := printf "%s[%d].%s" $.field $index $.key -}}
{{- with get $.seen . -}}
{{- $shown := eq $.key "sha256" | ternary "" (printf " %s:" (get $entry $.key)) -}}
{{- fail (printf "%s:%s that of %s too; give each its own" $field $shown .) -}}
{{- end -}}
{{- $_ := set $.seen . $field -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kafka-client-telemetry.checks.plugins" -}}
{{- $plugins := .Values.config.plugins -}}
{{- include "kafka-client-telemetry.checks.distinct" (dict "field" "config.plugins" "entries" $plugins "key" "name" "seen" dict) -}}
{{- $counts := dict -}}
{{- $spools := dict -}}
{{- range $index, $plugin := $plugins -}}
{{- $known := list "console" "kafka_topic" "otlp" "prometheus" "spool_files" -}}
{{- if and (eq $.Values.image.repository "ghcr.io/kafka-client-telemetry/receiver") (not (has .type $known)) -}}
{{- fail (printf "config.plugins[%d].type: %s: the image has %s; give one of these, or an image that has it, in image.repository" $index .type (join ", " $known)) -}}
{{- end -}}
{{- $urls := dict "endpoint" .endpoint "remote_write.url" (.remote_write | default dict).url -}}
{{- range $place, $url := .endpoints }}{{ $_ := set $urls (printf "endpoints[%d]" $place) $url }}{{ end -}}
{{- range $key, $url := $urls -}}
{{- if and $url (regexMatch "[@?#]" $url) (has $plugin.type (list "otlp" "prometheus")) -}}
{{- fail (printf "config.plugins[%d].%s: has a user, a query or a fragment; leave it out, and give credentials as headers from files" $index $key) -}}
{{- end -}}
{{- end -}}
{{- if eq .type "kafka_topic" -}}
{{- range $key, $value := dict "bootstrap_servers" .bootstrap_servers "oauth.token_endpoint_url" (.oauth | default dict).token_endpoint_url -}}
{{- if contains "@" ($value | default "") -}}
{{- fail (printf "config.plugins[%d].%s: has a user; leave it out, and give the login by its own keys" $index $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $count := get $counts .type | default 0 | int | add1 -}}
{{- $_ := set $counts .type $count -}}
{{- if ne (.delivery | default "spool_when_behind") "memory" -}}
{{- $name := .name | default (eq (int $count) 1 | ternary .type (printf "%s-%d" .type (int $count))) -}}
{{- $path := (.spool | default dict).path | default (printf "spool/%s" $name) -}}
{{- $path = clean (isAbs $path | ternary $path (printf "/var/lib/kafka-telemetry/%s" $path)) -}}
{{- with get $spools $path -}}
{{- fail (printf "config.plugins[%d].spool.path: %s: that of %s too; give each plugin its own" $index $path .) -}}
{{- end -}}
{{- $_ := set $spools $path (printf "config.plugins[%d]" $index) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A listener as the receiver reads it: (dict "field" "gateway.brokers[0].listener" "own" "gateway.brokers[0]" "listener" {...}); "own" has its upstream. */}}
{{- define "kafka-client-telemetry.checks.listener" -}}
{{- $field := .field -}}
{{- $own := .own -}}
{{- with .listener -}}
{{- $protocol := .security_protocol | default "PLAINTEXT" -}}
{{- $listener := . -}}
{{- range $key, $of := dict "bind" $field "advertised" $field -}}
{{- with get $listener $key -}}
{{- include "kafka-client-telemetry.checks.address" (dict "field" (printf "%s.%s" $of $key) "value" .) -}}
{{- end -}}
{{- end -}}
{{- $upstreams := list -}}
{{- range splitList "," .upstream -}}
{{- $upstream := trim . -}}
{{- include "kafka-client-telemetry.checks.address" (dict "field" (printf "%s.upstream" $own) "value" $upstream) -}}
{{- if regexMatch ":0+$" $upstream -}}
{{- fail (printf "%s.upstream: %s: port 0; give the port of the broker's listener" $own $upstream) -}}
{{- end -}}
{{- if eq $listener.bind $upstream -}}
{{- fail (printf "%s.upstream: %s: the listener's own address; give that of the broker's listener" $own $upstream) -}}
{{- end -}}
{{- if has $upstream $upstreams -}}
{{- fail (printf "%s.upstream: %s: given twice; leave one out" $own $upstream) -}}
{{- end -}}
{{- $upstreams = append $upstreams $upstream -}}
{{- end -}}
{{- if gt (len $upstreams) 32 -}}
{{- fail (printf "%s.upstream: %d addresses; give 32 at most" $own (len $upstreams)) -}}
{{- end -}}
{{- include "kafka-client-telemetry.checks.rewrite" (dict "field" $field "own" $own "listener" . "upstreams" $upstreams) -}}
{{- if and (hasSuffix "SSL" $protocol) (not .tls) -}}
{{- fail (printf "%s.security_protocol: %s: needs tls; give its certificate and key" $field $protocol) -}}
{{- end -}}
{{- if and .tls (not (hasSuffix "SSL" $protocol)) -}}
{{- fail (printf "%s.tls: security_protocol is %s; set it to %s, or leave tls out" $field $protocol (hasPrefix "SASL" $protocol | ternary "SASL_SSL" "SSL")) -}}
{{- end -}}
{{- if hasKey . "principal_mapping_rules" -}}
{{- if and (ne $protocol "SSL") (ne .principal_mapping_rules "DEFAULT") -}}
{{- fail (printf "%s.principal_mapping_rules: %s: only with security_protocol SSL a certificate names the principal; leave them out" $field .principal_mapping_rules) -}}
{{- end -}}
{{- $rule := "(DEFAULT|RULE:(\\\\.|[^\\\\/])*/(\\\\.|[^\\\\/])*/[LU]?|)" -}}
{{- if not (and (regexMatch (printf "^\\s*%s\\s*(,\\s*%s\\s*)*$" $rule $rule) .principal_mapping_rules) (regexMatch "DEFAULT|RULE:" .principal_mapping_rules)) -}}
{{- fail (printf "%s.principal_mapping_rules: %s: expected RULE:pattern/replacement/ with L, U or nothing, and DEFAULT, separated by commas" $field .principal_mapping_rules) -}}
{{- end -}}
{{- range regexFindAll "RULE:(\\\\.|[^\\\\/])*/" .principal_mapping_rules -1 -}}
{{- /* Ends with what is wrong, if the pattern can't be read. */ -}}
{{- $_ := mustRegexMatch (trimPrefix "RULE:" . | trimSuffix "/") "" -}}
{{- end -}}
{{- end -}}
{{- range $index, $network := (.proxy_protocol | default dict).from -}}
{{- include "kafka-client-telemetry.checks.network" (dict "field" (printf "%s.proxy_protocol.from[%d]" $field $index) "value" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kafka-client-telemetry.checks.ipv4" -}}
((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])
{{- end -}}

{{- define "kafka-client-telemetry.checks.ipv6" -}}
{{- $h := "[0-9A-Fa-f]{1,4}" -}}
{{- $forms := list (printf "(%s:){7}%s" $h $h) "::" -}}
{{- range $left := until 7 -}}
{{- $forms = append $forms (printf "(%s:){%d}(:%s){1,%d}" $h (add1 $left) $h (sub 6 $left | max 1)) -}}
{{- end -}}
{{- $forms = append $forms (printf ":(:%s){1,7}" $h) -}}
{{- $forms = append $forms (printf "(%s:){1,7}:" $h) -}}
({{ join "|" $forms }})
{{- end -}}

{{/* `host:port`: (dict "field" "..." "value" "..."). */}}
{{- define "kafka-client-telemetry.checks.address" -}}
{{- $port := regexFind "[0-9]+$" .value -}}
{{- $host := trimSuffix (printf ":%s" $port) .value -}}
{{- $label := "[A-Za-z0-9_][A-Za-z0-9_-]{0,62}" -}}
{{- $good := regexMatch (printf "^\\[%s\\]$" (include "kafka-client-telemetry.checks.ipv6" .)) $host -}}
{{- if regexMatch "^[0-9.]+$" $host -}}
{{- $good = regexMatch (printf "^%s$" (include "kafka-client-telemetry.checks.ipv4" .)) $host -}}
{{- else if regexMatch (printf "^%s(\\.%s)*\\.?$" $label $label) $host -}}
{{- $good = le (len $host) 253 -}}
{{- end -}}
{{- if or (not $good) (gt (int64 $port) 65535) -}}
{{- fail (printf "%s: %s: expected host:port, for example 127.0.0.1:19092, [::1]:19092 or broker-1.example:9092" .field .value) -}}
{{- end -}}
{{- end -}}

{{/* A network, without bits behind its prefix: (dict "field" "..." "value" "10.0.0.0/8"). */}}
{{- define "kafka-client-telemetry.checks.network" -}}
{{- $address := first (splitList "/" .value) -}}
{{- $length := regexFind "/[0-9]{1,3}$" .value | trimPrefix "/" -}}
{{- $fail := printf "%s: %s: expected a network such as 10.0.0.0/8 or fd00::/8, with zeros behind its prefix" .field .value -}}
{{- $groups := list -}}
{{- $bits := 8 -}}
{{- if regexMatch (printf "^%s(/(3[0-2]|[12]?[0-9]))?$" (include "kafka-client-telemetry.checks.ipv4" .)) .value -}}
{{- range splitList "." $address }}{{ $groups = append $groups (int64 .) }}{{ end -}}
{{- else if regexMatch (printf "^%s(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?$" (include "kafka-client-telemetry.checks.ipv6" .)) .value -}}
{{- $bits = 16 -}}
{{- $halves := splitList "::" $address -}}
{{- $left := splitList ":" (first $halves) | compact -}}
{{- $right := len $halves | eq 2 | ternary (splitList ":" (last $halves) | compact) list -}}
{{- range $left }}{{ $groups = append $groups (printf "0x%s" . | int64) }}{{ end -}}
{{- range until (sub 8 (add (len $left) (len $right)) | int) }}{{ $groups = append $groups (int64 0) }}{{ end -}}
{{- range $right }}{{ $groups = append $groups (printf "0x%s" . | int64) }}{{ end -}}
{{- else -}}
{{- fail $fail -}}
{{- end -}}
{{- $prefix := empty $length | ternary 128 (int $length) -}}
{{- range $index, $group := $groups -}}
{{- $kept := max 0 (min $bits (sub $prefix (mul $bits $index))) -}}
{{- $size := 1 -}}
{{- range until (sub $bits $kept | int) }}{{ $size = mul $size 2 }}{{ end -}}
{{- if mod $group $size }}{{ fail $fail }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* How a listener rewrites addresses: (dict "field" "..." "own" "..." "listener" {...} "upstreams" [...]). */}}
{{- define "kafka-client-telemetry.checks.rewrite" -}}
{{- $field := .own -}}
{{- $count := len .upstreams -}}
{{- with .listener -}}
{{- $rewrites := eq (.addresses | default "keep") "rewrite" -}}
{{- if ne $rewrites (not (empty .rewrite)) -}}
{{- fail (printf "%s.addresses: %s: addresses: rewrite and rewrite belong together; give both, or neither" $field (.addresses | default "keep")) -}}
{{- end -}}
{{- if and (not $rewrites) (gt $count 1) -}}
{{- fail (printf "%s.upstream: %s: clients of a listener reach one broker; give each broker a listener, or set addresses: rewrite" $field .upstream) -}}
{{- end -}}
{{- if $rewrites -}}
{{- if .advertised -}}
{{- fail (printf "%s.advertised: %s: clients get rewrite.host; leave it out" $field .advertised) -}}
{{- end -}}
{{- $host := .rewrite.host -}}
{{- $first := .rewrite.first_port | default 0 | int -}}
{{- $nodes := .rewrite.nodes | default 32 | int -}}
{{- $bind := regexFind "[0-9]+$" .bind | int -}}
{{- $names := contains "{node_id}" $host -}}
{{- if or (regexMatch "[{}]" (replace "{node_id}" "" $host)) (gt (regexFindAll "\\{" $host -1 | len) 1) -}}
{{- fail (printf "%s.rewrite.host: %s: the only field is {node_id}, once; give for example b{node_id}.gateway.example" $field $host) -}}
{{- end -}}
{{- if eq $names (gt $first 0) -}}
{{- fail (printf "%s.rewrite.first_port: %d: nodes have ports or names; give first_port, or a host with {node_id}" $field $first) -}}
{{- end -}}
{{- if and $names (not (hasSuffix "SSL" (.security_protocol | default "PLAINTEXT"))) -}}
{{- fail (printf "%s.rewrite.host: %s: only with TLS clients say which name they want; set security_protocol to SSL or SASL_SSL, or give first_port" $field $host) -}}
{{- end -}}
{{- if and $first (gt (add $first $nodes) 65536) -}}
{{- fail (printf "%s.rewrite.nodes: %d: ports up to %d; give fewer nodes, or a lower first_port" $field $nodes (add $first $nodes -1)) -}}
{{- end -}}
{{- if and $first (ge $bind $first) (lt $bind (add $first $nodes | int)) -}}
{{- fail (printf "%s.bind: %d: the port of node %d; change bind or rewrite.first_port" $field $bind (sub $bind $first)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What listeners must fulfil together: (dict "root" $ "field" "config.listeners" "listeners" [...]). */}}
{{- define "kafka-client-telemetry.checks.listeners" -}}
{{- $ports := len .listeners -}}
{{- $held := (.root.Values.config.limits | default dict).max_held_bytes | default 402653184 | include "kafka-client-telemetry.settingBytes" | int64 -}}
{{- range .listeners -}}
{{- $buffer := hasKey . "socket_buffer_bytes" | ternary .socket_buffer_bytes 393216 | default 0 | include "kafka-client-telemetry.settingBytes" | int64 -}}
{{- $least := add (mul 16 $buffer) 1048576 -}}
{{- if lt $held $least -}}
{{- fail (printf "config.limits.max_held_bytes: %d: a quarter has no room for one slow reader of listener %s; give %d at least, or a lower socket_buffer_bytes" $held .name $least) -}}
{{- end -}}
{{- with .rewrite -}}
{{- if .first_port }}{{ $ports = add $ports (.nodes | default 32) }}{{ end -}}
{{- end -}}
{{- if .rewrite -}}
{{- $id := hasKey (.broker | default dict) "id" | ternary (.broker | default dict).id (($.root.Values.config.broker | default dict).id | default "auto") -}}
{{- if ne (toString $id) "auto" -}}
{{- fail (printf "%s: broker.id is %v, but listener %s has a broker for each node; give it broker: {id: auto}" $.field $id .name) -}}
{{- end -}}
{{- if and (eq $.field "config.listeners") (ne $.root.Values.sidecar.broker.idFrom "config") (not (hasKey (.broker | default dict) "id")) -}}
{{- fail (printf "config.listeners: listener %s has a broker for each node; give it broker: {id: auto}, or set sidecar.broker.idFrom to config" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if gt (int $ports) 250 -}}
{{- fail (printf "%s: %d ports with those of nodes, and 250 are possible; lower rewrite.nodes" .field (int $ports)) -}}
{{- end -}}
{{- end -}}
