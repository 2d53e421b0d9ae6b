{{/* Names and labels. Every program has a component of its own, which is part of its selector: DaemonSets never share one. */}}

{{- define "fairlead.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "fairlead.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "fairlead.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{/* What a program's objects are called: (list $ "plugin"). */}}
{{- define "fairlead.component" -}}
{{- $full := include "fairlead.fullname" (index . 0) }}
{{- $suffix := dict "plugin" "" "gfd" "-gpu-feature-discovery" "mps" "-mps-control-daemon" "amd-labeller" "-node-labeller" "extender" "-extender" }}
{{- printf "%s%s" $full (get $suffix (index . 1)) }}
{{- end }}

{{- define "fairlead.selector" -}}
{{- $ := index . 0 }}
{{- if $.Values.selectorLabelsOverride }}
{{- toYaml $.Values.selectorLabelsOverride }}
{{- else -}}
app.kubernetes.io/name: {{ include "fairlead.name" $ }}
app.kubernetes.io/instance: {{ $.Release.Name }}
{{- end }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "fairlead.podLabels" -}}
{{- $ := index . 0 }}
{{- $labels := dict "app.kubernetes.io/name" (include "fairlead.name" $) "app.kubernetes.io/instance" $.Release.Name }}
{{- toYaml (merge (include "fairlead.selector" . | fromYaml) $labels) }}
{{- end }}

{{- define "fairlead.labels" -}}
{{ include "fairlead.podLabels" . }}
{{- $ := index . 0 }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "fairlead.meta" -}}
name: {{ include "fairlead.component" . }}
namespace: {{ include "fairlead.namespace" (index . 0) }}
labels:
  {{- include "fairlead.labels" . | nindent 2 }}
{{- end }}

{{/* (list $ image): an image of its own, or the chart's. */}}
{{- define "fairlead.image" -}}
{{- $ := index . 0 }}
{{- $own := index . 1 | default dict }}
{{- $repository := $own.repository | default $.Values.image.repository }}
{{- $tag := $own.tag | default (empty $own.repository | ternary $.Values.image.tag "") | default $.Chart.AppVersion -}}
image: {{ printf "%s:%s" $repository $tag }}
imagePullPolicy: {{ $own.pullPolicy | default $.Values.image.pullPolicy | default "IfNotPresent" }}
{{- end }}

{{- define "fairlead.strategy" -}}
{{- $own := . | default dict }}
{{- $type := $own.type | default "RollingUpdate" -}}
type: {{ $type }}
{{- if eq $type "RollingUpdate" }}
{{- with $own.rollingUpdate }}
{{- $set := dict }}
{{- range $key, $value := . }}{{ if not (kindIs "invalid" $value) }}{{ $_ := set $set $key $value }}{{ end }}{{ end }}
{{- with $set }}
rollingUpdate:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Whether the plugin's new pod runs beside the old one and takes over from it. */}}
{{- define "fairlead.takesOver" -}}
{{- $v := .Values }}
{{- $own := eq $v.dialect "amd" | ternary ($v.amd.dp.updateStrategy | default $v.updateStrategy) $v.updateStrategy | default dict }}
{{- if and $v.takeOver $v.probes.enabled (not $v.devicePlugin.enableHostNetwork) (eq ($own.type | default "RollingUpdate") "RollingUpdate") }}true{{ end }}
{{- end }}

{{- /* The strategy of the plugin: as many new pods beside old ones as pods could be away. */}}
{{- define "fairlead.pluginStrategy" -}}
{{- $v := .Values }}
{{- $own := eq $v.dialect "amd" | ternary ($v.amd.dp.updateStrategy | default $v.updateStrategy) $v.updateStrategy | default dict }}
{{- if include "fairlead.takesOver" . }}
{{- $pace := $own.rollingUpdate | default dict }}
{{- $away := kindIs "invalid" $pace.maxUnavailable | ternary 1 $pace.maxUnavailable }}
{{- $surge := kindIs "invalid" $pace.maxSurge | ternary (eq (toString $away) "0" | ternary 1 $away) $pace.maxSurge }}
{{- include "fairlead.strategy" (dict "type" "RollingUpdate" "rollingUpdate" (dict "maxSurge" $surge "maxUnavailable" 0)) }}
{{- else }}
{{- include "fairlead.strategy" $own }}
{{- end }}
{{- end }}
