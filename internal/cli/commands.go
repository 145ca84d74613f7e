// Package cli holds the commands that need neither a daemon nor pods: version, config, docs, and shell completion.
//
// It must not know what other commands do. It has no goroutines.
package cli

import "monopod/internal/program"

// Commands are the commands of this package.
type Commands struct{ *program.Program }

// NewCommands returns the commands of a program.
func NewCommands(p *program.Program) Commands { return Commands{p} }
