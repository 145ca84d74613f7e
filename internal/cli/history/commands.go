// Package history holds the commands about revisions of a pod: history, diff and rollback.
//
// It must not decide which revision runs: the daemon does. It has no goroutines.
package history

import "monopod/internal/program"

// Commands are the commands of this package.
type Commands struct{ *program.Program }

// NewCommands returns the commands of a program.
func NewCommands(p *program.Program) Commands { return Commands{p} }
