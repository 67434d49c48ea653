{{/* A duration such as 1h30m in seconds. */}}
{{- define "quota-translator.seconds" -}}
{{- $sizes := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h|d)" (toString .) -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = addf $sum (mulf (float64 (trimSuffix $unit .)) (get $sizes $unit)) -}}
{{- end -}}
{{ $sum }}
{{- end }}

{{/*
One flag for each value that is an option of the controller; files/options.yaml lists them. What has
no value has no flag, and the controller's own default holds. Only an empty list of resources is
said: it turns measuring off.
*/}}
{{- define "quota-translator.options" -}}
{{- $root := . -}}
{{- range $option := .Files.Get "files/options.yaml" | fromYamlArray }}
{{- $value := $root.Values }}
{{- range splitList "." $option.path }}
{{- $value = and (kindIs "map" $value) (hasKey $value .) | ternary (get ($value | default dict) .) (first (list nil)) }}
{{- end }}
{{- if not (include "quota-translator.optionIsMoot" (list $root $option.path)) }}
{{- $text := include "quota-translator.optionText" (list $option $value) }}
{{- if or $text (eq $option.path "capacity.resources") }}
- {{ printf "%s=%s" $option.flag $text | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* "true" for an option of something that is off. */}}
{{- define "quota-translator.optionIsMoot" -}}
{{- $root := index . 0 -}}
{{- $path := index . 1 -}}
{{- $certificates := include "quota-translator.certificates" $root -}}
{{- if and (hasPrefix "webhook." $path) (ne $path "webhook.enabled") (not $certificates) -}}
true
{{- else if and (has $path (list "webhook.certificateLifetime" "webhook.extraNames")) (ne $certificates "self") -}}
true
{{- else if and (hasPrefix "metrics." $path) (not ($root.Values.metrics).enabled) -}}
true
{{- end -}}
{{- end }}

{{- define "quota-translator.optionText" -}}
{{- $option := index . 0 -}}
{{- $value := index . 1 -}}
{{- if eq $option.kind "list" -}}
{{- $words := list -}}
{{- range $value -}}{{- $words = append $words (. | toString | trim) -}}{{- end -}}
{{ without $words "" | uniq | sortAlpha | join "," }}
{{- else if eq $option.kind "boolean" -}}
{{ if and (kindIs "bool" $value) $value }}true{{ else }}false{{ end }}
{{- else if eq $option.kind "number" -}}
{{ if not (has (kindOf $value) (list "string" "invalid")) }}{{ int64 $value }}{{ end }}
{{- else if eq $option.kind "duration" -}}
{{- include "quota-translator.durationText" . -}}
{{- else -}}
{{ $value | default "" | toString | trim }}
{{- end -}}
{{- end }}

{{/* An empty text is 0, as OME has it; null is no text at all. */}}
{{- define "quota-translator.durationText" -}}
{{- $option := index . 0 -}}
{{- $value := index . 1 -}}
{{- $text := kindIs "invalid" $value | ternary "" (toString $value | trim | default "0s") -}}
{{- if and $text (ne $text "never") -}}
{{- $seconds := float64 (include "quota-translator.seconds" $text) -}}
{{- if or (lt $seconds (float64 $option.least)) (gt $seconds (float64 $option.most)) -}}
{{- fail (printf "%s must be from %vs to %vs, got %s" $option.path $option.least $option.most $text) -}}
{{- end -}}
{{- end -}}
{{ $text }}
{{- end }}

{{/* All arguments after "run": where to listen, what things are called, and the options. */}}
{{- define "quota-translator.arguments" -}}
{{- $certificates := include "quota-translator.certificates" . }}
- {{ printf "--health-bind-address=:%d" ((.Values.health).port | default 8081 | int) | quote }}
{{- if (.Values.metrics).enabled }}
- {{ printf "--metrics-bind-address=:%d" ((.Values.metrics).port | default 8080 | int) | quote }}
{{- else }}
- "--metrics-bind-address=0"
{{- end }}
{{- if $certificates }}
- {{ printf "--webhook-bind-address=:%d" ((.Values.webhook).port | default 9443 | int) | quote }}
- {{ printf "--webhook-service-name=%s" (include "quota-translator.webhookService" .) | quote }}
- {{ printf "--webhook-configuration-name=%s" (include "quota-translator.webhookConfiguration" .) | quote }}
{{- if eq $certificates "self" }}
- {{ printf "--webhook-certificate-secret=%s" (include "quota-translator.webhookSecret" .) | quote }}
{{- else }}
- {{ printf "--webhook-certificate-folder=%s" (include "quota-translator.certificateFolder" .) | quote }}
{{- end }}
{{- end }}
{{- if (.Values.leaderElection).enabled }}
- {{ printf "--leader-election-lease-name=%s" (include "quota-translator.name" .) | quote }}
{{- end }}
- {{ printf "--materialize-field-manager=%s" ((.Values.materialize).fieldManager | default "" | trim | default (include "quota-translator.name" .)) | quote }}
{{- with include "quota-translator.namespaceSelector" . }}
- {{ printf "--materialize-namespace-selector=%s" . | quote }}
{{- end }}
{{- with (.Values.materialize).coverResources }}
{{- $amounts := list }}
{{- range $name, $amount := . }}
{{- $amounts = append $amounts (printf "%s=%s" $name (kindIs "float64" $amount | ternary (printf "%.0f" $amount) (toString $amount))) }}
{{- end }}
- {{ printf "--materialize-cover-resources=%s" (join "," $amounts) | quote }}
{{- end }}
{{- include "quota-translator.options" . }}
{{- end }}
