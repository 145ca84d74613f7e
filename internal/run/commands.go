package run

import (
	"monopod/internal/daemon"
	"monopod/internal/program"
)

// Commands are the commands of this package. They run pods, so they need what the pods run on.
type Commands struct {
	*program.Program
	Machine daemon.Machine
}

// NewCommands returns the commands of a program.
func NewCommands(p *program.Program, m daemon.Machine) Commands { return Commands{p, m} }
