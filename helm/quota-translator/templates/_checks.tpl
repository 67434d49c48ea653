{{/* What the schema cannot say, each in a sentence that names the value and what to write. */}}
{{- define "quota-translator.check" -}}
{{- include "quota-translator.checkIdentity" . -}}
{{- include "quota-translator.checkWebhook" . -}}
{{- include "quota-translator.checkPorts" . -}}
{{- include "quota-translator.checkMetrics" . -}}
{{- include "quota-translator.checkLeaderElection" . -}}
{{- if and (include "quota-translator.enrolled" .) (include "quota-translator.namespaceSelector" .) -}}
{{- fail "materialize.enrolledNamespaces and materialize.namespaceSelector exclude each other: give the list or the selector" -}}
{{- end -}}
{{- include "quota-translator.checkSelector" . -}}
{{- end }}

{{- define "quota-translator.checkSelector" -}}
{{- $text := include "quota-translator.namespaceSelector" . -}}
{{- $value := "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?" -}}
{{- $key := printf "([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?%s" $value -}}
{{- $set := printf "%s +(in|notin) *\\( *%s( *, *%s)* *\\)" $key $value $value -}}
{{- $term := printf "(!?%s|%s *(=|==|!=) *(%s)?|%s)" $key $key $value $set -}}
{{- if and $text (not (regexMatch (printf "^%s( *, *%s)*$" $term $term) $text)) -}}
{{- fail (printf "materialize.namespaceSelector must be a label selector such as \"team in (a,b),gpu=true,!old\", got %q" $text) -}}
{{- end -}}
{{- end }}

{{- define "quota-translator.checkIdentity" -}}
{{- $mode := .Values.mode | default "" | toString | trim -}}
{{- if eq $mode "management" -}}
{{- fail "mode \"management\" holds a tree for a fleet of clusters, which this version does not do yet: set mode to \"workload\"" -}}
{{- else if ne $mode "workload" -}}
{{- fail (printf "mode must be \"workload\" or \"management\", got %q" $mode) -}}
{{- end -}}
{{- $name := include "quota-translator.name" . -}}
{{- if or (gt (len $name) 55) (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name)) -}}
{{- fail (printf "name must be at most 55 lower-case letters, digits and hyphens, a letter first, got %q (%d)" $name (len $name)) -}}
{{- end -}}
{{- if not ((.Values.image).repository | default "" | trim) -}}
{{- fail "image.repository must name an image, such as registry.example.com/quota-translator" -}}
{{- end -}}
{{- end }}

{{- define "quota-translator.checkWebhook" -}}
{{- if and (eq (include "quota-translator.certificates" .) "mounted") (not (include "quota-translator.webhookSecret" .)) -}}
{{- fail "webhook.secretName must name the Secret with tls.crt and tls.key while webhook.certificates is \"mounted\"" -}}
{{- end -}}
{{- $issuer := (.Values.webhook).issuerRef -}}
{{- if and $issuer (not $issuer.name) -}}
{{- fail "webhook.issuerRef needs a name: that of the Issuer or ClusterIssuer" -}}
{{- end -}}
{{- end }}

{{- define "quota-translator.checkPorts" -}}
{{- $ports := list ((.Values.health).port | default 8081 | int) -}}
{{- if (.Values.metrics).enabled -}}
{{- $ports = append $ports ((.Values.metrics).port | default 8080 | int) -}}
{{- end -}}
{{- if (.Values.webhook).enabled -}}
{{- $ports = append $ports ((.Values.webhook).port | default 9443 | int) -}}
{{- end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- fail (printf "health.port, metrics.port and webhook.port must differ, got %s" (join ", " $ports)) -}}
{{- end -}}
{{- end }}

{{- define "quota-translator.checkMetrics" -}}
{{- range $name := list "serviceMonitor" "prometheusRule" -}}
{{- $given := index ($.Values.metrics | default dict) $name | default dict -}}
{{- if and $given.enabled (not ($.Values.metrics).enabled) -}}
{{- fail (printf "metrics.%s.enabled needs metrics.enabled: true, or there would be no metrics for it: turn them on or set metrics.%s.enabled to false" $name $name) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* As the controller itself demands it: a leader must stop before another one may begin. */}}
{{- define "quota-translator.checkLeaderElection" -}}
{{- $given := .Values.leaderElection -}}
{{- if and (gt (int .Values.replicaCount) 1) (not ($given).enabled) -}}
{{- fail (printf "replicaCount %d needs leaderElection.enabled: true, or every replica would write: turn it on or set replicaCount to 1" (int .Values.replicaCount)) -}}
{{- end -}}
{{- $lease := float64 (include "quota-translator.seconds" (($given).leaseDuration | default "15s")) -}}
{{- $renew := float64 (include "quota-translator.seconds" (($given).renewDeadline | default "10s")) -}}
{{- $retry := float64 (include "quota-translator.seconds" (($given).retryPeriod | default "2s")) -}}
{{- if gt (mulf $renew 1.2) $lease -}}
{{- fail (printf "leaderElection.leaseDuration (%vs) must be at least 1.2 times as long as leaderElection.renewDeadline (%vs)" $lease $renew) -}}
{{- end -}}
{{- if gt (mulf $retry 1.2) $renew -}}
{{- fail (printf "leaderElection.renewDeadline (%vs) must be at least 1.2 times as long as leaderElection.retryPeriod (%vs)" $renew $retry) -}}
{{- end -}}
{{- end }}
