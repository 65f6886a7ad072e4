{{- define "signalbox.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 46 | trimSuffix "-" }}{{ end }}
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
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
# Only a volume that does not belong to the group is given to it, not each file at each start.
fsGroupChangePolicy: OnRootMismatch
# It refuses io_uring. All works without it, with more CPU where many clients are connected: SIZING.md has the remedy.
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "signalbox.contained" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Contradictions that a schema cannot say. */}}
{{- define "signalbox.check" -}}
{{- $v := .Values }}
{{- if not $v.image.repository }}{{ fail "image.repository is empty; name the image, without its tag" }}{{ end }}
{{- if eq (int $v.replicas) 2 }}{{ fail "replicas is 2; choose 1, or 3 to 64: of two, the loss of either stops both" }}{{ end }}
{{- if gt (int $v.replicationFactor) (int $v.replicas) }}{{ fail (printf "replicationFactor is %d and replicas is %d; choose a factor of at most the replicas" (int $v.replicationFactor) (int $v.replicas)) }}{{ end }}
{{- if and (dig "limits" "memory" "" $v.resources) (has (get $v.settings "max-memory" | toString) (list "" "0")) }}{{ fail "resources.limits.memory is set and settings.max-memory is not; set max-memory to about three quarters of the limit" }}{{ end }}
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
