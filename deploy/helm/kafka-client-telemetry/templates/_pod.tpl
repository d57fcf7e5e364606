{{/* What pods of gateway and roll-up have in common. */}}

{{/* Where a pod may run: (dict "root" $ "values" .Values.gateway). */}}
{{- define "kafka-client-telemetry.scheduling" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Spread constraints with the pods' own labels where a constraint has none: (dict "constraints" [...] "labels" "yaml"). */}}
{{- define "kafka-client-telemetry.spread" -}}
{{- range .constraints }}
- {{ toYaml . | nindent 2 | trim }}
{{- if not (hasKey . "labelSelector") }}
  labelSelector:
    matchLabels:
      {{- $.labels | nindent 6 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Volumes of Secrets that are folders: (dict "mounts" .Values.secretMounts). */}}
{{- define "kafka-client-telemetry.secretVolumes" -}}
{{- range $index, $mount := .mounts }}
- name: kafka-telemetry-secret-{{ $index }}
  secret:
    secretName: {{ $mount.secretName }}
    {{- with $mount.items }}
    items:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end }}
{{- end -}}

{{- define "kafka-client-telemetry.secretVolumeMounts" -}}
{{- range $index, $mount := .mounts }}
- name: kafka-telemetry-secret-{{ $index }}
  mountPath: {{ $mount.mountPath }}
  readOnly: true
{{- end }}
{{- end -}}

{{/* A NetworkPolicy's rules: (dict "root" $ "clients" [ports] "monitoring" [ports] "peers" [rules of its own]). */}}
{{- define "kafka-client-telemetry.networkRules" -}}
{{- $policy := .root.Values.networkPolicy -}}
policyTypes: [Ingress{{ if $policy.egress.enabled }}, Egress{{ end }}]
{{- if or .clients .monitoring .peers }}
ingress:
  {{- range $who, $ports := dict "clients" .clients "monitoring" .monitoring }}
  {{- if $ports }}
  - ports:
      {{- range $ports }}
      - {protocol: TCP, port: {{ . }}}
      {{- end }}
    {{- with index $policy $who }}
    from:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- end }}
  {{- with .peers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- if $policy.egress.enabled }}
egress:
  - ports:
      - {protocol: UDP, port: 53}
      - {protocol: TCP, port: 53}
  {{- with .peersOut }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $policy.egress.to }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}
