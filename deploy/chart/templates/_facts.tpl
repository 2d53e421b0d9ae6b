{{/* What the values mean: which configurations are possible, which features are on, what the host must show. */}}

{{- define "fairlead.configMap" -}}
{{- if eq .Values.dialect "nvidia" }}
{{- if .Values.config.name }}{{ .Values.config.name }}{{ else if .Values.config.map }}{{ include "fairlead.fullname" . }}-configs{{ end }}
{{- else if has .Values.dialect (list "generic" "smarter") }}
{{- if (get .Values .Values.dialect).devices }}{{ include "fairlead.fullname" . }}-config{{ end }}
{{- else if eq .Values.dialect "fairlead" }}
{{- default (printf "%s-config" (include "fairlead.fullname" .)) .Values.fairlead.existingConfigMap }}
{{- end }}
{{- end }}

{{/* What any configuration of NVIDIA's may ask for, as JSON: mig, volumes, cdi, mps. An external ConfigMap may ask for all. */}}
{{- define "fairlead.possible" -}}
{{- $v := .Values }}
{{- $found := dict "mig" false "volumes" false "cdi" false "mps" false }}
{{- if eq $v.dialect "nvidia" }}
  {{- if $v.migStrategy }}{{ $_ := set $found "mig" (ne $v.migStrategy "none") }}{{ end }}
  {{- if $v.deviceListStrategy }}
    {{- $_ := set $found "volumes" (contains "volume-mounts" $v.deviceListStrategy) }}
    {{- $_ := set $found "cdi" (contains "cdi-" $v.deviceListStrategy) }}
  {{- end }}
  {{- if $v.config.name }}
    {{- $_ := set $found "mps" true }}
    {{- if not $v.migStrategy }}{{ $_ := set $found "mig" true }}{{ end }}
    {{- if not $v.deviceListStrategy }}{{ $_ := set $found "volumes" true }}{{ $_ := set $found "cdi" true }}{{ end }}
  {{- end }}
  {{- range $name, $text := $v.config.map }}
    {{- $flags := ((fromYaml $text).flags | default dict) }}
    {{- if not $v.migStrategy }}
      {{- if ne ($flags.migStrategy | default "none") "none" }}{{ $_ := set $found "mig" true }}{{ end }}
    {{- end }}
    {{- if not $v.deviceListStrategy }}
      {{- $ways := toJson (($flags.plugin | default dict).deviceListStrategy) }}
      {{- if contains "volume-mounts" $ways }}{{ $_ := set $found "volumes" true }}{{ end }}
      {{- if contains "cdi-" $ways }}{{ $_ := set $found "cdi" true }}{{ end }}
    {{- end }}
    {{- if hasKey ((fromYaml $text).sharing | default dict) "mps" }}{{ $_ := set $found "mps" true }}{{ end }}
  {{- end }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{/* The label of the node that chooses the configuration of the device plugin; empty where there is one for all. */}}
{{- define "fairlead.configLabel" -}}
{{- if and (eq .Values.dialect "nvidia") (include "fairlead.configMap" .) }}nvidia.com/device-plugin.config
{{- else if eq .Values.dialect "fairlead" }}
{{- if or .Values.fairlead.configs (and .Values.fairlead.existingConfigMap .Values.fairlead.label) }}{{ .Values.fairlead.label | default "fairlead/config" }}{{ end }}
{{- end }}
{{- end }}

{{/* The configurations of the dialect fairlead by file, as JSON: backends look for the host below /host. */}}
{{- define "fairlead.files" -}}
{{- $files := deepCopy .Values.fairlead.configs }}
{{- if .Values.fairlead.config }}{{ $_ := set $files (empty .Values.fairlead.configs | ternary "fairlead.yaml" "default") (deepCopy .Values.fairlead.config) }}{{ end }}
{{- range $files }}
  {{- range .backends }}
    {{- if and (has .kind (list "amd" "paths")) (not .hostRoot) }}{{ $_ := set . "hostRoot" "/host" }}{{ end }}
  {{- end }}
{{- end }}
{{- toJson $files }}
{{- end }}

{{/* The backends of all of them, as a JSON list. */}}
{{- define "fairlead.backends" -}}
{{- $found := list }}
{{- range include "fairlead.files" . | fromJson }}{{ $found = concat $found (.backends | default list) }}{{ end }}
{{- toJson $found }}
{{- end }}

{{/* Features of the device plugin that speak to the API server, as a JSON list: keys of files/rights.yaml. */}}
{{- define "fairlead.features" -}}
{{- $v := .Values }}
{{- $on := list }}
{{- if has $v.dialect (list "gpushare" "volcano" "doslab") }}{{ $on = append $on $v.dialect }}{{ end }}
{{- if eq $v.dialect "gke" }}
  {{- if $v.gke.healthMonitoring }}{{ $on = append $on "gke.healthMonitoring" }}{{ end }}
  {{- if $v.gke.publishDriverVersion }}{{ $on = append $on "gke.publishDriverVersion" }}{{ end }}
{{- end }}
{{- if eq $v.dialect "fairlead" }}
  {{- $on = concat $on $v.rbac.features }}
  {{- range include "fairlead.files" . | fromJson }}
    {{- if .amounts }}{{ $on = append $on "amounts" }}{{ end }}
    {{- range .rules }}
      {{- with .assign }}
        {{- $on = append $on "assign" }}
        {{- if .nodeEnv }}{{ $on = append $on "assign.nodeEnv" }}{{ end }}
        {{- if .nodeLock }}{{ $on = append $on "assign.nodeLock" }}{{ end }}
      {{- end }}
    {{- end }}
    {{- range $key, $value := .cluster }}
      {{- if and $value (has $key (list "annotate" "condition" "devices" "events" "unhealthy")) }}{{ $on = append $on (printf "cluster.%s" $key) }}{{ end }}
    {{- end }}
  {{- end }}
{{- end }}
{{- if include "fairlead.configLabel" . }}{{ $on = append $on "config-label" }}{{ end }}
{{- $on | uniq | sortAlpha | toJson }}
{{- end }}

{{/* Every program that runs, with its features that speak to the API server, as JSON: by component. */}}
{{- define "fairlead.programs" -}}
{{- $v := .Values }}
{{- $nvidia := eq $v.dialect "nvidia" }}
{{- $managed := and $nvidia (ne (include "fairlead.configMap" .) "") }}
{{- $follows := $managed | ternary (list "config-manager") list }}
{{- $programs := dict }}
{{- if $v.devicePlugin.enabled }}{{ $_ := set $programs "plugin" (include "fairlead.features" . | fromJsonArray) }}{{ end }}
{{- if and $v.gfd.enabled $nvidia }}{{ $_ := set $programs "gfd" (concat (list ($v.gfd.toNode | ternary "gfd.toNode" "gfd")) $follows) }}{{ end }}
{{- if and $v.devicePlugin.enabled (include "fairlead.possible" . | fromJson).mps }}{{ $_ := set $programs "mps" $follows }}{{ end }}
{{- if and $v.amd.labeller.enabled (eq $v.dialect "amd") }}{{ $_ := set $programs "amd-labeller" (list "amd.labeller") }}{{ end }}
{{- if $v.extender.enabled }}{{ $_ := set $programs "extender" (include "fairlead.extenderFeatures" . | fromJsonArray) }}{{ end }}
{{- toJson $programs }}
{{- end }}

{{/* Features whose objects are in one namespace, as JSON: the namespace of each. */}}
{{- define "fairlead.near" -}}
{{- dict "gfd" (include "fairlead.namespace" .) "extender.unhealthyConfigMaps" "kube-system" | toJson }}
{{- end }}

{{/* The rules of some features, each resource once: (list $ features). */}}
{{- define "fairlead.rules" -}}
{{- $known := (index . 0).Files.Get "files/rights.yaml" | fromYaml }}
{{- $verbs := dict }}
{{- range $feature := index . 1 }}
  {{- range get $known $feature }}
    {{- $key := printf "%s|%s" .group .resource }}
    {{- $_ := set $verbs $key (concat (get $verbs $key | default list) .verbs | uniq) }}
  {{- end }}
{{- end }}
{{- range $key := keys $verbs | sortAlpha }}
{{- $parts := splitList "|" $key }}
- apiGroups: [{{ index $parts 0 | quote }}]
  resources: [{{ index $parts 1 | quote }}]
  verbs: {{ get $verbs $key | sortAlpha | toJson }}
{{- end }}
{{- end }}

{{/* Directories of the host that the device plugin sees, as a YAML list. */}}
{{- define "fairlead.hosts" -}}
{{- $v := .Values }}
{{- $possible := include "fairlead.possible" . | fromJson }}
{{- $gke := eq $v.dialect "gke" -}}
- {name: device-plugins, host: {{ $v.kubelet.devicePluginDir | quote }}, path: {{ $gke | ternary "/device-plugin" "/var/lib/kubelet/device-plugins" }}}
- {name: pod-resources, host: {{ printf "%s/pod-resources" $v.kubelet.rootDir | quote }}, path: /var/lib/kubelet/pod-resources, readOnly: true}
{{- if eq $v.dialect "nvidia" }}
{{- with $v.nvidiaDriverRoot }}
- {name: driver-root, host: {{ . | quote }}, path: /driver-root, readOnly: true, type: Directory}
{{- end }}
{{- if $possible.cdi }}
- {name: cdi, host: /var/run/cdi, path: /var/run/cdi, type: DirectoryOrCreate}
{{- end }}
{{- if $possible.mps }}
- {name: mps-root, host: {{ $v.mps.root | quote }}, path: /mps, type: DirectoryOrCreate}
- {name: mps-shm, host: {{ printf "%s/shm" $v.mps.root | quote }}, path: /dev/shm, type: DirectoryOrCreate}
{{- end }}
{{- else if $gke }}
- {name: dev, host: /dev, path: /dev}
- {name: driver, host: {{ $v.gke.driverDir | quote }}, path: /usr/local/nvidia, type: Directory}
- {name: gpu-config, host: {{ $v.gke.configDir | quote }}, path: /etc/nvidia, readOnly: true, type: DirectoryOrCreate}
{{- if $v.gke.mps }}
- {name: mps, host: /tmp/nvidia-mps, path: /tmp/nvidia-mps}
{{- end }}
{{- else if eq $v.dialect "amd" }}
- {name: sys, host: /sys, path: /host/sys, readOnly: true}
- {name: dev, host: /dev, path: /host/dev, readOnly: true}
- {name: exporter, host: {{ $v.amd.exporterDir | quote }}, path: /var/lib/amd-metrics-exporter, type: DirectoryOrCreate}
{{- else if has $v.dialect (list "generic" "smarter") }}
- {name: sys, host: /sys, path: /host/sys, readOnly: true}
- {name: dev, host: /dev, path: /host/dev, readOnly: true}
{{- else if eq $v.dialect "fairlead" }}
{{- include "fairlead.hostsOfConfig" . }}
{{- end }}
{{- if has $v.dialect (list "generic" "smarter" "fairlead") }}
{{- range $index, $path := $v.hostPaths }}
- {name: host-{{ $index }}, host: {{ $path | quote }}, path: {{ printf "/host%s" $path | quote }}, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{/* The same for the backends of configurations of Fairlead's own. */}}
{{- define "fairlead.hostsOfConfig" -}}
{{- $made := dict }}
{{- range include "fairlead.files" . | fromJson }}
  {{- if eq ((.kubelet | default dict).registration | default "socket") "watcher" }}
    {{- $_ := set $made "plugins-registry" (dict "host" (printf "%s/plugins_registry" $.Values.kubelet.rootDir) "path" "/var/lib/kubelet/plugins_registry") }}
  {{- end }}
{{- end }}
{{- range include "fairlead.backends" . | fromJsonArray }}
  {{- if has .kind (list "amd" "paths") }}
    {{- $_ := set $made "sys" (dict "host" "/sys" "path" (printf "%s/sys" (trimSuffix "/" .hostRoot)) "readOnly" true) }}
    {{- $_ := set $made "dev" (dict "host" "/dev" "path" (printf "%s/dev" (trimSuffix "/" .hostRoot)) "readOnly" true) }}
  {{- end }}
  {{- if eq .kind "amd" }}
    {{- $_ := set $made "exporter" (dict "host" $.Values.amd.exporterDir "path" "/var/lib/amd-metrics-exporter" "type" "DirectoryOrCreate") }}
  {{- end }}
  {{- if eq .kind "nvidia" }}
    {{- if and .driverRoot (ne .driverRoot "/") }}
      {{- $_ := set $made "driver-root" (dict "host" .driverRoot "path" (.driverRootMount | default "/driver-root") "readOnly" true "type" "Directory") }}
    {{- end }}
    {{- with (.mps | default dict).root }}
      {{- $_ := set $made "mps-root" (dict "host" $.Values.mps.root "path" . "type" "DirectoryOrCreate") }}
      {{- $_ := set $made "mps-shm" (dict "host" (printf "%s/shm" $.Values.mps.root) "path" "/dev/shm" "type" "DirectoryOrCreate") }}
    {{- end }}
  {{- end }}
  {{- if and (has .kind (list "amd" "nvidia")) (contains "cdi-" (toJson .ways)) }}
    {{- $directory := (.cdi | default dict).directory | default "/var/run/cdi" }}
    {{- $_ := set $made "cdi" (dict "host" $directory "path" $directory "type" "DirectoryOrCreate") }}
  {{- end }}
{{- end }}
{{- range $name := keys $made | sortAlpha }}
- {{ merge (dict "name" $name) (get $made $name) | toJson }}
{{- end }}
{{- end }}

{{- define "fairlead.volumes" -}}
{{- range . }}
- name: {{ .name }}
  hostPath:
    path: {{ .host }}
    {{- with .type }}
    type: {{ . }}
    {{- end }}
{{- end }}
{{- end }}

{{- define "fairlead.mounts" -}}
{{- range . }}
- name: {{ .name }}
  mountPath: {{ .path }}
  {{- if .readOnly }}
  readOnly: true
  {{- end }}
{{- end }}
{{- end }}
