//go:build tools

// Package tools pins h2spec: the command is built from here by its import path.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
