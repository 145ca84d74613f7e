// Package check holds the command that checks manifests without a daemon, and reads the manifest files of other commands.
//
// It must not judge manifests itself, which is the job of package verdict. It has no goroutines.
package check

import "monopod/internal/program"

// Commands are the commands of this package.
type Commands struct{ *program.Program }

// NewCommands returns the commands of a program.
func NewCommands(p *program.Program) Commands { return Commands{p} }
