//go:build tools

// Package tools names kwok, so that go.sum covers it.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
