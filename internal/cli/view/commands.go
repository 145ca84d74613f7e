// Package view holds the commands that list what a daemon knows: get, top and status.
//
// It must not change anything. Its goroutines end with the command.
package view

import "monopod/internal/program"

// Commands are the commands of this package.
type Commands struct{ *program.Program }

// NewCommands returns the commands of a program.
func NewCommands(p *program.Program) Commands { return Commands{p} }
