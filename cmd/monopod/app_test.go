package main

import (
	"context"
	"testing"

	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
)

// commands executes a command line with all commands.
func commands(ctx context.Context, p *program.Program, args []string) int {
	return NewCommands(p).run(ctx, args)
}

func newDaemon(t testing.TB, settings ...string) *clitest.Daemon {
	t.Helper()
	return clitest.New(t, commands, settings...)
}
