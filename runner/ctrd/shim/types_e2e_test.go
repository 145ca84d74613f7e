//go:build e2e

package shim_test

import "github.com/opencontainers/runtime-spec/specs-go"

type ociMount = specs.Mount
