// Package view holds the commands that list the state of a daemon: get, top and status.
//
// It must not change anything. Its goroutines end with the command.
package view

import "monopod/internal/program"

// Commands are the commands of this package.
type Commands struct{ *program.Program }

// NewCommands returns the commands of a program.
func NewCommands(p *program.Program) Commands { return Commands{p} }
