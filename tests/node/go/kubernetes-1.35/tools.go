//go:build tools

// Package tools names the kubelet, so that go.sum covers it. The rest of the node stays at its own version.
package tools

import _ "k8s.io/kubernetes/cmd/kubelet"
