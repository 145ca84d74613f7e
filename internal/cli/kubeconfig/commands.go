// Package kubeconfig holds the command that writes kubeconfigs for monopod's Kubernetes API.
//
// It must not sign certificates: the daemon does. It starts no goroutines.
package kubeconfig

import "monopod/internal/program"

// Commands are the commands of this package.
type Commands struct{ *program.Program }

// NewCommands returns the commands of a program.
func NewCommands(p *program.Program) Commands { return Commands{p} }
