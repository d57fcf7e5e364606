{{/* What gateways and the receivers of bridges have in common: pods of their own, with a volume each. */}}

{{/* The ConfigMap of a part: (dict "root" $ "part" "gateway" "config" "yaml"). */}}
{{- define "kafka-client-telemetry.workload.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "kafka-client-telemetry.metadata" (dict "root" .root "name" (include "kafka-client-telemetry.partName" (dict "root" .root "suffix" .part)) "component" .part) | nindent 2 }}
data:
  config.yaml: |
    {{- .config | trim | nindent 4 }}
{{- end -}}

{{/* Whether something else than this chart sets the number of a part's pods: (dict "root" $ "part" "gateway"); empty if not. */}}
{{- define "kafka-client-telemetry.workload.isScaled" -}}
{{- $values := index .root.Values .part -}}
{{- if or (kindIs "invalid" $values.replicas) ($values.autoscaling | default dict).enabled }}true{{ end -}}
{{- end -}}

{{/* The pods of a part that are there at any time: (dict "root" $ "part" "gateway"). */}}
{{- define "kafka-client-telemetry.workload.fewestPods" -}}
{{- $values := index .root.Values .part -}}
{{- if ($values.autoscaling | default dict).enabled -}}
{{- int $values.autoscaling.minReplicas -}}
{{- else -}}
{{- kindIs "invalid" $values.replicas | ternary 1 $values.replicas | int -}}
{{- end -}}
{{- end -}}

{{/*
`replicas` of a part: (dict "root" $ "part" "gateway"). Where an autoscaler sets it, it is what the cluster has, because Kubernetes takes a field
that a release had and has no more for one pod. Empty where no cluster is asked, as by `helm template`.
*/}}
{{- define "kafka-client-telemetry.workload.replicas" -}}
{{- $fewest := include "kafka-client-telemetry.workload.fewestPods" . -}}
{{- if not (include "kafka-client-telemetry.workload.isScaled" .) -}}
{{- $fewest -}}
{{- else -}}
{{- with lookup "apps/v1" "StatefulSet" .root.Release.Namespace "" -}}
{{- $name := include "kafka-client-telemetry.ownerName" (dict "root" $.root "suffix" $.part) -}}
{{- $replicas := $fewest -}}
{{- range .items -}}
{{- if eq .metadata.name $name }}{{ $replicas = int .spec.replicas }}{{ end -}}
{{- end -}}
{{- $replicas -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The StatefulSet of a part: (dict "root" $ "part" "gateway" "config" "yaml" "service" "gateway-pods" "ports" [...] "readiness" "/readyz" "graceSeconds" 20), and "preStopSeconds" and "mounts" where it has them. */}}
{{- define "kafka-client-telemetry.workload.statefulSet" -}}
{{- $root := .root -}}
{{- $part := .part -}}
{{- $values := index $root.Values $part -}}
{{- $selector := include "kafka-client-telemetry.selectorLabels" (dict "root" $root "component" $part) -}}
{{- $checksum := dict (printf "kafka-client-telemetry/%s-config" $part) (sha256sum .config) -}}
{{- $spread := $values.topologySpreadConstraints -}}
{{- if kindIs "invalid" $spread -}}
{{- $spread = list -}}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" -}}
{{- $spread = append $spread (dict "maxSkew" 1 "topologyKey" . "whenUnsatisfiable" "ScheduleAnyway") -}}
{{- end -}}
{{- end -}}
{{- $data := dict -}}
{{- if not $values.persistence.enabled -}}
{{- $data = dict "emptyDir" (dict "sizeLimit" $values.persistence.size) -}}
{{- end -}}
# A StatefulSet, because each pod keeps subscriptions and spool of its own.
apiVersion: apps/v1
kind: StatefulSet
metadata:
  {{- include "kafka-client-telemetry.metadata" (dict "root" $root "name" (include "kafka-client-telemetry.ownerName" (dict "root" $root "suffix" $part)) "component" $part) | nindent 2 }}
spec:
  serviceName: {{ include "kafka-client-telemetry.partName" (dict "root" $root "suffix" .service) }}
  {{- with include "kafka-client-telemetry.workload.replicas" (dict "root" $root "part" $part) }}
  replicas: {{ . }}
  {{- end }}
  # Pods don't know of each other: none waits for another.
  podManagementPolicy: Parallel
  updateStrategy: {type: {{ $values.updateStrategy }}}
  minReadySeconds: {{ int $values.minReadySeconds }}
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
  template:
    metadata:
      {{- include "kafka-client-telemetry.podMetadata" (dict "root" $root "component" $part "values" $values "annotations" $checksum) | nindent 6 }}
    spec:
      serviceAccountName: {{ include "kafka-client-telemetry.serviceAccountName" $root }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ .graceSeconds }}
      securityContext:
        {{- toYaml $root.Values.podSecurityContext | nindent 8 }}
      {{- with include "kafka-client-telemetry.scheduling" (dict "root" $root "values" $values) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with $spread }}
      topologySpreadConstraints:
        {{- include "kafka-client-telemetry.spread" (dict "constraints" . "labels" $selector) | trim | nindent 8 }}
      {{- end }}
      containers:
        - name: receiver
          {{- include "kafka-client-telemetry.receiverContainer" (dict "root" $root "ports" .ports "readiness" .readiness "mounts" .mounts) | nindent 10 }}
          {{- with .preStopSeconds }}
          lifecycle:
            preStop:
              exec: {command: [sleep, {{ int . | quote }}]}
          {{- end }}
      volumes:
        {{- include "kafka-client-telemetry.receiverVolumes" (dict "root" $root "configMap" (include "kafka-client-telemetry.partName" (dict "root" $root "suffix" $part)) "key" "config.yaml" "data" $data "mounts" .mounts) | trim | nindent 8 }}
  {{- if $values.persistence.enabled }}
  volumeClaimTemplates:
    - apiVersion: v1
      kind: PersistentVolumeClaim
      metadata:
        name: kafka-telemetry-data
      spec:
        accessModes: [ReadWriteOnce]
        {{- with $values.persistence.storageClass }}
        storageClassName: {{ . }}
        {{- end }}
        resources: {requests: {storage: {{ $values.persistence.size }}}}
  {{- end }}
{{- end -}}

{{/* The PodDisruptionBudget of a part: (dict "root" $ "part" "gateway"). */}}
{{- define "kafka-client-telemetry.workload.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "kafka-client-telemetry.metadata" (dict "root" .root "name" (include "kafka-client-telemetry.partName" (dict "root" .root "suffix" .part)) "component" .part) | nindent 2 }}
spec:
  maxUnavailable: {{ (index .root.Values .part).podDisruptionBudget.maxUnavailable }}
  # A pod that is not ready, a gateway's whose brokers are all away say, must not hold up a drain.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "kafka-client-telemetry.selectorLabels" (dict "root" .root "component" .part) | nindent 6 }}
{{- end -}}

{{/* The pods of `helm test`, which prove the setup of each pod of a part, with its configuration and files: (dict "root" $ "part" "gateway" "service" "gateway-pods"), and "mounts" where it has them. */}}
{{- define "kafka-client-telemetry.workload.doctor" -}}
{{- $root := .root -}}
{{- $part := .part -}}
{{- $mounts := .mounts -}}
{{- $values := index $root.Values $part -}}
{{- $name := include "kafka-client-telemetry.ownerName" (dict "root" $root "suffix" $part) -}}
{{- $domain := printf "%s.%s.svc.%s" (include "kafka-client-telemetry.partName" (dict "root" $root "suffix" .service)) $root.Release.Namespace $root.Values.clusterDomain -}}
{{- $hook := dict "helm.sh/hook" "test" "helm.sh/hook-delete-policy" "before-hook-creation" -}}
{{- range $index := until (include "kafka-client-telemetry.workload.fewestPods" . | int) }}
{{- $host := printf "%s-%d.%s" $name $index $domain }}
---
apiVersion: v1
kind: Pod
metadata:
  {{- include "kafka-client-telemetry.metadata" (dict "root" $root "name" (include "kafka-client-telemetry.partName" (dict "root" $root "suffix" (printf "%s-doctor-%d" $part $index))) "component" (printf "%s-doctor" $part) "annotations" $hook) | nindent 2 }}
spec:
  restartPolicy: Never
  activeDeadlineSeconds: 300
  serviceAccountName: {{ include "kafka-client-telemetry.serviceAccountName" $root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  {{- with include "kafka-client-telemetry.scheduling" (dict "root" $root "values" $values) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  containers:
    - name: doctor
      {{- include "kafka-client-telemetry.receiverProgram" (dict "root" $root "args" (list "doctor" "--config" "/etc/kafka-telemetry/config.yaml" "--host" $host) "mounts" $mounts) | nindent 6 }}
  volumes:
    {{- include "kafka-client-telemetry.receiverVolumes" (dict "root" $root "configMap" (include "kafka-client-telemetry.partName" (dict "root" $root "suffix" $part)) "key" "config.yaml" "data" (dict "emptyDir" (dict "sizeLimit" "64Mi")) "mounts" $mounts) | trim | nindent 4 }}
{{- end }}
{{- end -}}

{{/* The component of a part's doctor as a peer of its NetworkPolicy: (dict "root" $ "part" "gateway" "ports" [...]); empty if it is off. */}}
{{- define "kafka-client-telemetry.workload.doctorPeers" -}}
{{- if (index .root.Values .part).doctor.enabled -}}
- from: [{podSelector: {matchLabels: {{ include "kafka-client-telemetry.selectorLabels" (dict "root" .root "component" (printf "%s-doctor" .part)) | fromYaml | toJson }}}}]
  ports:
    {{- range .ports }}
    - {protocol: TCP, port: {{ int . }}}
    {{- end }}
{{- end -}}
{{- end -}}
