{{- /* At most 45 characters: the backup's job adds 7, and may have 52. */}}
{{- define "signalbox.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 45 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 45 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "signalbox.selector" -}}
{app.kubernetes.io/name: {{ .Chart.Name }}, app.kubernetes.io/instance: {{ .Release.Name }}}
{{- end }}

{{- define "signalbox.image" -}}
{{- $i := .Values.image }}
{{- if $i.digest }}{{ $i.repository }}@{{ $i.digest }}{{ else }}{{ $i.repository }}:{{ $i.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* Addresses of pods, and of the service for clients, by their full names. */}}
{{- define "signalbox.domain" -}}
{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- /* A duration as whole seconds, rounded up. The schema allows ms, s and m. */}}
{{- define "signalbox.seconds" -}}
{{- if hasSuffix "ms" . }}{{ divf (trimSuffix "ms" .) 1000 | ceil }}
{{- else if hasSuffix "m" . }}{{ mul (trimSuffix "m" .) 60 }}
{{- else }}{{ trimSuffix "s" . }}
{{- end }}
{{- end }}

{{- define "signalbox.stopWait" -}}
{{- $s := include "signalbox.seconds" .Values.stopWait | int }}
{{- if gt $s 1800 }}{{ fail (printf "stopWait is %s; choose 0s to 30m" .Values.stopWait) }}{{ end }}
{{- $s }}
{{- end }}

{{- define "signalbox.secured" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
fsGroup: {{ int64 . }}
{{- end }}
# Only a volume that does not belong to the group is given to it, not each file at each start.
fsGroupChangePolicy: OnRootMismatch
# It refuses io_uring. All works without it, with more CPU where many clients are connected: SIZING.md has the remedy.
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* What all pods have. */}}
{{- define "signalbox.pod" -}}
automountServiceAccountToken: false
{{- with .Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  {{- include "signalbox.secured" . | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* What all containers have. */}}
{{- define "signalbox.container" -}}
image: {{ include "signalbox.image" . | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* The spec of a claim of a size. */}}
{{- define "signalbox.claim" -}}
accessModes: [ReadWriteOnce]
{{- with .root.Values.storage.class }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests: {storage: {{ .size }}}
{{- end }}

{{- /* The environment of an instance: of the pod itself, or of a pod whose name is given. */}}
{{- define "signalbox.env" -}}
{{- $v := .root.Values }}
{{- $name := include "signalbox.name" .root }}
{{- $domain := printf "%s-peers.$(NAMESPACE).svc.%s" $name $v.clusterDomain -}}
- name: POD
  {{- if .pod }}
  value: {{ .pod }}
  {{- else }}
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- end }}
- name: NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- $domains := list }}
{{- range $key, $d := $v.failureDomain }}
{{- if hasKey $d "label" }}
- name: DOMAIN_{{ $key }}
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['{{ $d.label }}']"}}
{{- $domains = append $domains (printf "%s=$(DOMAIN_%s)" $key $key) }}
{{- else }}
{{- $domains = append $domains (printf "%s=%s" $key $d.value) }}
{{- end }}
{{- end }}
- {name: SIGNALBOX_INSTANCE, value: $(POD)}
{{- if $v.tls.clients.plain }}
- {name: SIGNALBOX_LISTEN, value: "0.0.0.0:7070"}
- {name: SIGNALBOX_ADVERTISE, value: "$(POD).{{ $domain }}:7070"}
{{- else }}
- {name: SIGNALBOX_LISTEN, value: "off"}
{{- end }}
{{- if $v.tls.clients.secret }}
- {name: SIGNALBOX_LISTEN_TLS, value: "0.0.0.0:7443"}
- {name: SIGNALBOX_ADVERTISE_TLS, value: "$(POD).{{ $domain }}:7443"}
- {name: SIGNALBOX_LISTEN_TLS_CERT, value: /etc/signalbox/clients/tls.crt}
- {name: SIGNALBOX_LISTEN_TLS_KEY, value: /etc/signalbox/clients/tls.key}
{{- end }}
- {name: SIGNALBOX_RAFT, value: "0.0.0.0:7071"}
- {name: SIGNALBOX_RAFT_ADVERTISE, value: "$(POD).{{ $domain }}:7071"}
{{- if $v.tls.cluster.secret }}
- {name: SIGNALBOX_CLUSTER_TLS_CERT, value: /etc/signalbox/cluster/tls.crt}
- {name: SIGNALBOX_CLUSTER_TLS_KEY, value: /etc/signalbox/cluster/tls.key}
- {name: SIGNALBOX_CLUSTER_TLS_CA, value: /etc/signalbox/cluster/ca.crt}
{{- end }}
{{- if gt (int $v.replicas) 1 }}
# The first three make the cluster, and all others join them. So scaling changes no running pod.
- {name: SIGNALBOX_PEER, value: "{{ $name }}-0.{{ $domain }}:7071,{{ $name }}-1.{{ $domain }}:7071,{{ $name }}-2.{{ $domain }}:7071"}
{{- end }}
- {name: SIGNALBOX_REPLICATION_FACTOR, value: {{ $v.replicationFactor | quote }}}
- {name: SIGNALBOX_JOIN_TOKEN_FILE, value: /etc/signalbox/join/join-token}
- {name: SIGNALBOX_STOP_WAIT, value: {{ $v.stopWait }}}
- {name: SIGNALBOX_DATA, value: /data/signalbox}
- {name: SIGNALBOX_ADMIN, value: "0.0.0.0:7072"}
- {name: SIGNALBOX_LOG_FORMAT, value: json}
{{- if $v.auth.enabled }}
- {name: SIGNALBOX_AUTH, value: "true"}
{{- end }}
{{- if $v.auth.adminTokenSecret }}
- {name: SIGNALBOX_ADMIN_TOKEN_FILE, value: /etc/signalbox/admin/admin-token}
{{- end }}
{{- with $domains }}
- {name: SIGNALBOX_FAILURE_DOMAIN, value: {{ join "," . | quote }}}
{{- end }}
{{- if $v.console.enabled }}
- {name: SIGNALBOX_CONSOLE, value: "0.0.0.0:7073"}
- {name: SIGNALBOX_CONSOLE_HOST, value: {{ join "," $v.console.hosts | quote }}}
{{- if $v.tls.console.secret }}
- {name: SIGNALBOX_CONSOLE_TLS_CERT, value: /etc/signalbox/console/tls.crt}
- {name: SIGNALBOX_CONSOLE_TLS_KEY, value: /etc/signalbox/console/tls.key}
{{- end }}
{{- if not $v.tls.clients.plain }}
- {name: SIGNALBOX_CONSOLE_CA, value: /etc/signalbox/clients/ca.crt}
{{- end }}
{{- end }}
{{- if $v.http.enabled }}
- {name: SIGNALBOX_HTTP, value: "0.0.0.0:7074"}
- name: SIGNALBOX_HTTP_HOST
  value: {{ join "," (concat (list $name (printf "%s.$(NAMESPACE)" $name) (printf "%s.$(NAMESPACE).svc" $name) (printf "%s.$(NAMESPACE).svc.%s" $name $v.clusterDomain)) $v.http.hosts) | quote }}
{{- if $v.tls.http.secret }}
- {name: SIGNALBOX_HTTP_TLS_CERT, value: /etc/signalbox/http/tls.crt}
- {name: SIGNALBOX_HTTP_TLS_KEY, value: /etc/signalbox/http/tls.key}
{{- end }}
{{- if not $v.tls.clients.plain }}
- {name: SIGNALBOX_HTTP_CA, value: /etc/signalbox/clients/ca.crt}
{{- end }}
{{- end }}
{{- range $flag, $value := $v.settings }}
{{- if kindIs "slice" $value }}{{ $value = join "," $value }}{{ end }}
{{- if kindIs "float64" $value }}{{ $value = int64 $value }}{{ end }}
- {name: SIGNALBOX_{{ $flag | upper | replace "-" "_" }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- with $v.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "signalbox.mounts" -}}
{{- $v := .Values -}}
- {name: join, mountPath: /etc/signalbox/join, readOnly: true}
{{- if $v.tls.cluster.secret }}
- {name: cluster, mountPath: /etc/signalbox/cluster, readOnly: true}
{{- end }}
{{- if $v.tls.clients.secret }}
- {name: clients, mountPath: /etc/signalbox/clients, readOnly: true}
{{- end }}
{{- if $v.tls.console.secret }}
- {name: console, mountPath: /etc/signalbox/console, readOnly: true}
{{- end }}
{{- if $v.tls.http.secret }}
- {name: http, mountPath: /etc/signalbox/http, readOnly: true}
{{- end }}
{{- if $v.auth.adminTokenSecret }}
- {name: admin, mountPath: /etc/signalbox/admin, readOnly: true}
{{- end }}
{{- with $v.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "signalbox.volumes" -}}
{{- $v := .Values -}}
- name: join
  secret:
    secretName: {{ $v.joinTokenSecret }}
    defaultMode: 0440
    items: [{key: join-token, path: join-token}]
{{- if $v.tls.cluster.secret }}
- name: cluster
  secret: {secretName: {{ $v.tls.cluster.secret }}, defaultMode: 0440}
{{- end }}
{{- if $v.tls.clients.secret }}
- name: clients
  secret: {secretName: {{ $v.tls.clients.secret }}, defaultMode: 0440}
{{- end }}
{{- if $v.tls.console.secret }}
- name: console
  secret: {secretName: {{ $v.tls.console.secret }}, defaultMode: 0440}
{{- end }}
{{- if $v.tls.http.secret }}
- name: http
  secret: {secretName: {{ $v.tls.http.secret }}, defaultMode: 0440}
{{- end }}
{{- if $v.auth.adminTokenSecret }}
- name: admin
  secret:
    secretName: {{ $v.auth.adminTokenSecret }}
    defaultMode: 0440
    items: [{key: admin-token, path: admin-token}]
{{- end }}
{{- with $v.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* A text or a number as text, without an exponent. */}}
{{- define "signalbox.text" -}}
{{ if kindIs "string" . }}{{ . }}{{ else }}{{ int64 . }}{{ end }}
{{- end }}

{{- /* A size as bytes: of Kubernetes, such as 1Gi, 1500M and 2e9, or of signalbox, such as 1GiB. */}}
{{- define "signalbox.bytes" -}}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 }}
{{- $unit := regexFind "[A-Za-z]+$" (trimSuffix "B" .) }}
{{- mulf (regexFind "^[0-9.]+([eE][0-9]+)?" .) (get $units $unit | default 1) | int64 }}
{{- end }}

{{- /* Contradictions that a schema cannot say. */}}
{{- define "signalbox.check" -}}
{{- $v := .Values }}
{{- if not $v.image.repository }}{{ fail "image.repository is empty; name the image, without its tag" }}{{ end }}
{{- if eq (int $v.replicas) 2 }}{{ fail "replicas is 2; choose 1, or 3 to 64: of two, the loss of either stops both" }}{{ end }}
{{- if gt (int $v.replicationFactor) (int $v.replicas) }}{{ fail (printf "replicationFactor is %d and replicas is %d; choose a factor of at most the replicas" (int $v.replicationFactor) (int $v.replicas)) }}{{ end }}
{{- $memory := include "signalbox.text" (get $v.settings "max-memory" | default "0") }}
{{- if not (regexMatch "^[0-9]*([KMGT]iB)?$" $memory) }}{{ fail (printf "settings.max-memory is %s; write a number of bytes, or a number with KiB, MiB, GiB or TiB, such as 768MiB" $memory) }}{{ end }}
{{- $limit := include "signalbox.text" (dig "limits" "memory" "" ($v.resources | default dict)) }}
{{- if and $limit (eq $memory "0") }}{{ fail "resources.limits.memory is set and settings.max-memory is not; set max-memory to about three quarters of the limit" }}{{ end }}
{{- if and $limit (gt (include "signalbox.bytes" $memory | int64) (include "signalbox.bytes" $limit | int64)) }}{{ fail (printf "settings.max-memory is %s and resources.limits.memory is %s; set max-memory to about three quarters of the limit" $memory $limit) }}{{ end }}
{{- if and $v.ingress.console (not $v.console.enabled) }}{{ fail "ingress.console is true and console.enabled is false; set console.enabled to true" }}{{ end }}
{{- if and $v.ingress.http (not (and $v.http.enabled $v.http.hosts)) }}{{ fail "ingress.http is true and http.enabled is false or http.hosts is empty; turn HTTP on, and list the names under which programs reach it" }}{{ end }}
{{- if and (not $v.tls.clients.plain) (not $v.tls.clients.secret) }}{{ fail "tls.clients.plain is false and tls.clients.secret is empty; clients would have no port: name the secret" }}{{ end }}
{{- if and $v.auth.adminTokenSecret (not $v.auth.enabled) }}{{ fail "auth.adminTokenSecret is set and auth.enabled is false; set auth.enabled to true, or remove the secret" }}{{ end }}
{{- if and $v.auth.enabled $v.backup.schedule (not $v.backup.tokenSecret) }}{{ fail "auth.enabled is true and backup.tokenSecret is empty; name a secret with the token of an identity that has the right admin on /" }}{{ end }}
{{- if and $v.console.enabled (not $v.console.hosts) }}{{ fail "console.enabled is true and console.hosts is empty; list the names under which people reach the console" }}{{ end }}
{{- if and $v.tls.console.secret (not $v.console.enabled) }}{{ fail "tls.console.secret is set and console.enabled is false; set console.enabled to true, or remove the secret" }}{{ end }}
{{- if and $v.tls.http.secret (not $v.http.enabled) }}{{ fail "tls.http.secret is set and http.enabled is false; set http.enabled to true, or remove the secret" }}{{ end }}
{{- range $key, $d := $v.failureDomain }}
{{- if eq (hasKey $d "label") (hasKey $d "value") }}{{ fail (printf "failureDomain.%s needs either a label or a value" $key) }}{{ end }}
{{- end }}
{{- include "signalbox.stopWait" . | trimAll "0123456789" }}
{{- end }}
