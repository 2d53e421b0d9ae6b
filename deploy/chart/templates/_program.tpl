{{/* The device plugin's command line and environment, by dialect. */}}

{{- define "fairlead.command" -}}
{{- $v := .Values }}
{{- $words := list $v.dialect }}
{{- $config := include "fairlead.configMap" . }}
{{- if eq $v.dialect "fairlead" }}
  {{- $words = list "run" (include "fairlead.configLabel" . | empty | ternary "--config=/etc/fairlead/fairlead.yaml" "--config=/etc/fairlead") }}
{{- else if eq $v.dialect "amd" }}
  {{- $words = concat $words (list "--host-root=/host" (printf "-pulse=%d" (int $v.amd.pulse)) (printf "-resource_naming_strategy=%s" $v.amd.resourceNamingStrategy)) }}
{{- else if eq $v.dialect "gke" }}
  {{- if $v.gke.healthMonitoring }}{{ $words = append $words "-enable-health-monitoring" }}{{ end }}
  {{- if $v.gke.publishDriverVersion }}{{ $words = append $words "-publish-driver-version" }}{{ end }}
  {{- if $v.gke.containerMetrics }}{{ $words = concat $words (list "-enable-container-gpu-metrics" (printf "-gpu-metrics-port=%d" (int $v.metrics.port))) }}{{ end }}
{{- else if eq $v.dialect "generic" }}
  {{- $words = append $words "--host-root=/host" }}
  {{- if $config }}{{ $words = append $words "--config=/etc/fairlead/config.yaml" }}{{ end }}
{{- else if eq $v.dialect "smarter" }}
  {{- $words = append $words "--host-root=/host" }}
  {{- if $config }}{{ $words = append $words "--config=/etc/fairlead/conf.yaml" }}{{ end }}
{{- else if eq $v.dialect "gpushare" }}
  {{- $words = append $words (printf "--memory-unit=%s" $v.gpushare.memoryUnit) }}
{{- else if eq $v.dialect "volcano" }}
  {{- $words = concat $words (list (printf "--gpu-strategy=%s" $v.volcano.strategy) (printf "--gpu-memory-factor=%d" (int $v.volcano.memoryFactor))) }}
{{- end }}
{{- concat $v.image.command $words $v.args | toJson }}
{{- end }}

{{/* NVIDIA's variables: each only if its value is set. (dict variable value). */}}
{{- define "fairlead.variables" -}}
{{- range $name := keys . | sortAlpha }}
{{- $value := get $ $name }}
{{- if not (kindIs "invalid" $value) }}
- {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "fairlead.env" -}}
{{- $v := .Values }}
{{- $possible := include "fairlead.possible" . | fromJson -}}
{{- include "fairlead.nodeName" . }}
- {name: FAIRLEAD_STATUS_SOCKET, value: /run/fairlead/fairlead.sock}
{{- if or $v.probes.enabled $v.metrics.enabled $v.web.enabled }}
- {name: {{ eq $v.dialect "generic" | ternary "LISTEN" "FAIRLEAD_HTTP" }}, value: ":{{ int $v.metrics.port }}"}
{{- else if eq $v.dialect "generic" }}
- {name: LISTEN, value: ""}
{{- end }}
{{- if $v.web.enabled }}
- {name: FAIRLEAD_PAGE_TOKEN_FILE, value: /etc/fairlead-page/token}
{{- end }}
{{- if include "fairlead.takesOver" . }}
- {name: FAIRLEAD_TAKE_OVER, value: "true"}
{{- end }}
{{- if $v.lenient }}
- {name: FAIRLEAD_LENIENT, value: "true"}
{{- end }}
{{- with include "fairlead.configLabel" . }}
- {name: FAIRLEAD_CONFIG_LABEL, value: {{ . | quote }}}
- {name: FAIRLEAD_CONFIG_DEFAULT, value: {{ eq $v.dialect "nvidia" | ternary $v.config.default ($v.fairlead.config | empty | ternary "" "default") | quote }}}
{{- end }}
{{- if has $v.dialect (list "nvidia" "gpushare" "volcano" "doslab" "fairlead") }}
- {name: NVIDIA_VISIBLE_DEVICES, value: {{ include "fairlead.wantsNvidia" . | eq "true" | ternary "all" "void" }}}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: "compute,utility"}
{{- end }}
{{- if eq $v.dialect "nvidia" }}
{{- include "fairlead.variables" (dict
  "MIG_STRATEGY" $v.migStrategy
  "FAIL_ON_INIT_ERROR" $v.failOnInitError
  "PASS_DEVICE_SPECS" $v.compatWithCPUManager
  "DEVICE_LIST_STRATEGY" $v.deviceListStrategy
  "DEVICE_ID_STRATEGY" $v.deviceIDStrategy
  "NVIDIA_DRIVER_ROOT" $v.nvidiaDriverRoot
  "NVIDIA_DEV_ROOT" $v.nvidiaDevRoot
  "GDRCOPY_ENABLED" $v.gdrcopyEnabled
  "GDS_ENABLED" $v.gdsEnabled
  "MOFED_ENABLED" $v.mofedEnabled
  "DEVICE_DISCOVERY_STRATEGY" $v.deviceDiscoveryStrategy
  "NVIDIA_CDI_HOOK_PATH" $v.cdi.nvidiaHookPath
  "CDI_FEATURE_FLAGS" $v.cdi.featureFlags) }}
{{- if $possible.mps }}
- {name: MPS_ROOT, value: {{ $v.mps.root | quote }}}
{{- end }}
{{- if include "fairlead.configMap" . }}
- {name: CONFIG_FILE, value: /etc/fairlead}
- {name: FAIRLEAD_CONFIG_FALLBACKS, value: {{ join "," ($v.config.fallbackStrategies | default list) | quote }}}
{{- end }}
{{- if $possible.mig }}
- {name: NVIDIA_MIG_MONITOR_DEVICES, value: all}
{{- end }}
{{- end }}
{{- if eq $v.dialect "gke" }}
- name: XID_CONFIG
  valueFrom: {configMapKeyRef: {name: xid-config, key: HealthCriticalXid, optional: true}}
{{- end }}
{{- with $v.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Whether the device plugin calls NVIDIA's driver. NVIDIA's runtime gives it to containers that ask. */}}
{{- define "fairlead.wantsNvidia" -}}
{{- $wants := ne .Values.dialect "fairlead" }}
{{- if not $wants }}{{ range include "fairlead.backends" . | fromJsonArray }}{{ if eq .kind "nvidia" }}{{ $wants = true }}{{ end }}{{ end }}{{ end }}
{{- if .Values.fairlead.existingConfigMap }}{{ $wants = true }}{{ end }}
{{- $wants }}
{{- end }}
