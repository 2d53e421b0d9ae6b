//go:build tools

// Package tools names helm, so that go.sum covers it.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
