{{/* How much each mode may do. The guide has the table with the reasons. */}}

{{- define "fairlead.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "fairlead.sysAdmin" -}}
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  add: [SYS_ADMIN]
{{- end }}

{{- define "fairlead.privileged" -}}
privileged: true
readOnlyRootFilesystem: true
{{- end }}

{{/* What the device plugin needs: restricted, sysAdmin or privileged. */}}
{{- define "fairlead.level" -}}
{{- $v := .Values }}
{{- $possible := include "fairlead.possible" . | fromJson }}
{{- $level := "restricted" }}
{{- if has $v.dialect (list "amd" "gke") }}{{ $level = "privileged" }}{{ end }}
{{- if eq $v.dialect "nvidia" }}
  {{- if or $possible.mig $possible.volumes }}{{ $level = "sysAdmin" }}{{ end }}
  {{- if $v.compatWithCPUManager }}{{ $level = "privileged" }}{{ end }}
{{- end }}
{{- if eq $v.dialect "fairlead" }}
  {{- range include "fairlead.backends" . | fromJsonArray }}
    {{- if eq .kind "nvidia" }}
      {{- if and (eq $level "restricted") (or (ne (.mig | default "none") "none") (contains "volume-mounts" (toJson .ways))) }}{{ $level = "sysAdmin" }}{{ end }}
      {{- if or .nodes (.mps | default dict).managed }}{{ $level = "privileged" }}{{ end }}
    {{- end }}
    {{- if eq .kind "amd" }}{{ $level = "privileged" }}{{ end }}
  {{- end }}
{{- end }}
{{- $level }}
{{- end }}

{{- define "fairlead.pluginSecurity" -}}
{{- $own := .Values.securityContext }}
{{- if eq .Values.dialect "amd" }}{{ $own = .Values.amd.securityContext | default $own }}{{ end }}
{{- if $own }}{{ toYaml $own }}{{ else }}{{ include (printf "fairlead.%s" (include "fairlead.level" .)) . }}{{ end }}
{{- end }}

{{/* Labels: the PCI configuration space of virtual GPUs, and MIG, can be read with SYS_ADMIN alone. */}}
{{- define "fairlead.gfdSecurity" -}}
{{- if .Values.gfd.securityContext }}{{ toYaml .Values.gfd.securityContext }}{{ else }}{{ include "fairlead.sysAdmin" . }}{{ end }}
{{- end }}

{{/* What needs nothing of the node is no root. The group reads the certificates. */}}
{{- define "fairlead.userSecurity" -}}
{{- $chosen := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- toYaml (merge (deepCopy (.Values.podSecurityContext | default dict)) $chosen) }}
{{- end }}

{{/* The kubelet's directory belongs to root, whatever user the image names. */}}
{{- define "fairlead.podSecurity" -}}
{{- $chosen := dict "runAsUser" 0 "runAsGroup" 0 "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- toYaml (merge (deepCopy (.Values.podSecurityContext | default dict)) $chosen) }}
{{- end }}
