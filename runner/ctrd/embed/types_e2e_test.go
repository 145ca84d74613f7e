//go:build e2e

package embed_test

import (
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/opencontainers/runtime-spec/specs-go"
)

type (
	containersContainer = containers.Container
	ociMount            = specs.Mount
)
