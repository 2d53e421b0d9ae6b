{{/* What all pods have in common. */}}

{{/* Where and how it runs: (list $ extra-node-selector). */}}
{{- define "fairlead.scheduling" -}}
{{- $ := index . 0 }}
{{- $v := $.Values }}
{{- $amd := eq $v.dialect "amd" }}
{{- with $v.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if has $v.dialect (list "nvidia" "gpushare" "volcano" "doslab" "fairlead") }}
{{- with $v.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- end }}
{{- with ($amd | ternary ($v.amd.imagePullSecrets | default $v.imagePullSecrets) $v.imagePullSecrets) }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $selector := merge (deepCopy (index . 1)) (deepCopy ($v.nodeSelector | default dict)) }}
{{- if and $amd $v.amd.node_selector_enabled }}{{ $selector = merge $selector ($v.amd.node_selector | default dict) }}{{ end }}
{{- with $selector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $affinity := omit ($v.affinity | default dict) "ofDialect" }}
{{- if $affinity }}
affinity:
  {{- toYaml $affinity | nindent 2 }}
{{- else if $v.affinity }}
{{- include "fairlead.affinityOfDialect" $ }}
{{- end }}
{{- $tolerations := $amd | ternary ($v.amd.tolerations | default $v.tolerations) $v.tolerations }}
{{- if eq $v.dialect "gke" }}
{{- $tolerations = concat ($tolerations | default list) (list (dict "operator" "Exists" "effect" "NoSchedule") (dict "operator" "Exists" "effect" "NoExecute")) }}
{{- end }}
{{- with $tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The nodes that the chart or manifest of that system selects. */}}
{{- define "fairlead.affinityOfDialect" -}}
{{- $terms := list }}
{{- if eq .Values.dialect "nvidia" }}
{{- range $label, $value := dict "feature.node.kubernetes.io/cpu-model.vendor_id" "NVIDIA" "feature.node.kubernetes.io/pci-10de.present" "true" "nvidia.com/gpu.present" "true" }}
{{- $terms = append $terms (dict "key" $label "operator" "In" "values" (list $value)) }}
{{- end }}
{{- else if eq .Values.dialect "gke" }}
{{- $terms = list (dict "key" "cloud.google.com/gke-accelerator" "operator" "Exists") }}
{{- else if eq .Values.dialect "gpushare" }}
{{- $terms = list (dict "key" "gpushare" "operator" "In" "values" (list "true")) }}
{{- else if eq .Values.dialect "smarter" }}
{{- $terms = list (dict "key" "smarter-device-manager" "operator" "In" "values" (list "enabled")) }}
{{- end }}
{{- with $terms }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      {{- range . }}
      - matchExpressions:
        - {{ toJson . }}
      {{- end }}
{{- end }}
{{- end }}

{{/* Annotations of a pod. A changed ConfigMap starts no pod anew: the programs read it again by themselves. */}}
{{- define "fairlead.podMeta" -}}
labels:
  {{- include "fairlead.podLabels" . | nindent 2 }}
{{- with (index . 0).Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "fairlead.nodeName" -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- end }}

{{/* config-manager, which follows the node's label: (list $ name oneshot process). Only it gets the token. The device plugin follows the label by itself. */}}
{{- define "fairlead.configManager" -}}
{{- $ := index . 0 }}
{{- $oneshot := index . 2 -}}
- name: {{ index . 1 }}
  {{- include "fairlead.image" (list $ nil) | nindent 2 }}
  command: {{ concat $.Values.image.command (list "nvidia" "config-manager") | toJson }}
  env:
  {{- include "fairlead.nodeName" $ | nindent 2 }}
  - {name: ONESHOT, value: {{ $oneshot | quote }}}
  - {name: NODE_LABEL, value: nvidia.com/device-plugin.config}
  - {name: CONFIG_FILE_SRCDIR, value: /available-configs}
  - {name: CONFIG_FILE_DST, value: /config/config.yaml}
  - {name: DEFAULT_CONFIG, value: {{ $.Values.config.default | quote }}}
  - {name: FALLBACK_STRATEGIES, value: {{ join "," ($.Values.config.fallbackStrategies | default list) | quote }}}
  {{- if or $oneshot (not (index . 3)) }}
  - {name: SEND_SIGNAL, value: "false"}
  {{- else }}
  - {name: SEND_SIGNAL, value: "true"}
  - {name: PROCESS_TO_SIGNAL, value: {{ index . 3 }}}
  {{- end }}
  {{- with $.Values.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "fairlead.restricted" $ | nindent 4 }}
  volumeMounts:
  - {name: available-configs, mountPath: /available-configs, readOnly: true}
  - {name: config, mountPath: /config}
  - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{- define "fairlead.configVolumes" -}}
- name: available-configs
  configMap: {name: {{ include "fairlead.configMap" . }}}
- name: config
  emptyDir: {}
- name: token
  projected:
    defaultMode: 0400
    sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3607}
    - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}

{{- define "fairlead.configMounts" -}}
- {name: available-configs, mountPath: /available-configs, readOnly: true}
- {name: config, mountPath: /config, readOnly: true}
{{- end }}
