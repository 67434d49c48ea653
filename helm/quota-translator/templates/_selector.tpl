{{/*
The namespaces' selector as text, which is what a flag takes: "team in (a,b),gpu=true,!old".
Every namespace carries its own name as a label, so that key alone means all of them.
*/}}
{{- define "quota-translator.namespaceSelector" -}}
{{- $given := (.Values.materialize).namespaceSelector -}}
{{- if kindIs "map" $given -}}
{{- range $key := keys $given -}}
{{- if not (has $key (list "matchLabels" "matchExpressions")) -}}
{{- fail (printf "materialize.namespaceSelector.%s is not a field of a label selector: write matchLabels or matchExpressions" $key) -}}
{{- end -}}
{{- end -}}
{{- $terms := list -}}
{{- range $key, $text := $given.matchLabels -}}
{{- $terms = append $terms (printf "%s=%s" $key (toString $text)) -}}
{{- end -}}
{{- range $given.matchExpressions -}}
{{- $terms = append $terms (include "quota-translator.selectorTerm" .) -}}
{{- end -}}
{{ $terms | join "," | default "kubernetes.io/metadata.name" }}
{{- else -}}
{{ $given | default "" | toString | trim }}
{{- end -}}
{{- end }}

{{- define "quota-translator.selectorTerm" -}}
{{- $values := .values | default list | join "," -}}
{{- if eq .operator "In" -}}
{{ .key }} in ({{ $values }})
{{- else if eq .operator "NotIn" -}}
{{ .key }} notin ({{ $values }})
{{- else if eq .operator "Exists" -}}
{{ .key }}
{{- else if eq .operator "DoesNotExist" -}}
!{{ .key }}
{{- else -}}
{{- fail (printf "materialize.namespaceSelector: the operator %q is not one of In, NotIn, Exists, DoesNotExist" (toString .operator)) -}}
{{- end -}}
{{- end }}
