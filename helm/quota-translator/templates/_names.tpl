{{/* Names, labels and switches. Every value may be null, which is off. */}}

{{- define "quota-translator.name" -}}
{{ .Values.name | default "" | toString | trim }}
{{- end }}

{{- define "quota-translator.webhookService" -}}
{{ include "quota-translator.name" . }}-webhook
{{- end }}

{{- define "quota-translator.webhookConfiguration" -}}
{{ include "quota-translator.name" . }}.quota-translator.dev
{{- end }}

{{/* The Secret with the certificate, whoever makes it. */}}
{{- define "quota-translator.webhookSecret" -}}
{{- if eq (include "quota-translator.certificates" .) "mounted" -}}
{{ (.Values.webhook).secretName | default "" | trim }}
{{- else -}}
{{ include "quota-translator.name" . }}-webhook-cert
{{- end -}}
{{- end }}

{{- define "quota-translator.serviceAccount" -}}
{{- $given := (.Values.serviceAccount).name | default "" | trim -}}
{{- if $given -}}
{{ $given }}
{{- else if (.Values.serviceAccount).create -}}
{{ include "quota-translator.name" . }}
{{- else -}}
default
{{- end -}}
{{- end }}

{{- define "quota-translator.image" -}}
{{- $repository := (.Values.image).repository | default "" | trim -}}
{{- $digest := (.Values.image).digest | default "" | trim -}}
{{- $tag := (.Values.image).tag | default "" | toString | trim | default .Chart.AppVersion -}}
{{- if $digest -}}
{{ $repository }}@{{ $digest }}
{{- else -}}
{{ $repository }}:{{ $tag }}
{{- end -}}
{{- end }}

{{/* Those by which Services, budgets and constraints find the pods; they never change. */}}
{{- define "quota-translator.selector" -}}
app.kubernetes.io/name: {{ include "quota-translator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "quota-translator.labels" -}}
{{ include "quota-translator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* "self", "certManager" or "mounted" while the webhook is on, else "". */}}
{{- define "quota-translator.certificates" -}}
{{- if (.Values.webhook).enabled -}}
{{ (.Values.webhook).certificates | default "self" }}
{{- end -}}
{{- end }}

{{/* The enrolled namespaces, comma-separated: trimmed, sorted, each once. */}}
{{- define "quota-translator.enrolled" -}}
{{- $names := list -}}
{{- range (.Values.materialize).enrolledNamespaces -}}
{{- $names = append $names (. | toString | trim) -}}
{{- end -}}
{{ without $names "" | uniq | sortAlpha | join "," }}
{{- end }}

{{/* "true" when anything may be written to Kueue, else "". */}}
{{- define "quota-translator.materializes" -}}
{{- if or (include "quota-translator.enrolled" .) (include "quota-translator.namespaceSelector" .) -}}
true
{{- end -}}
{{- end }}

{{- define "quota-translator.measures" -}}
{{- $names := list -}}
{{- range (.Values.capacity).resources -}}
{{- $names = append $names (. | toString | trim) -}}
{{- end -}}
{{ without $names "" | uniq | sortAlpha | join "," }}
{{- end }}

{{/* Where a pair that somebody else makes is mounted. */}}
{{- define "quota-translator.certificateFolder" -}}
/var/run/quota-translator/certificates
{{- end }}
