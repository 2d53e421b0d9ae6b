//go:build tools

// Package tools pins NVIDIA's own programs, so that go.mod and go.sum name everything they are built from.
package tools

import (
	_ "github.com/NVIDIA/k8s-device-plugin/cmd/gpu-feature-discovery"
	_ "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin"
)
