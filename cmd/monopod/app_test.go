package main

import (
	"context"
	"testing"

	"monopod/internal/daemontest/clitest"
)

// commands executes a command line with all commands.
func commands(ctx context.Context, p *clitest.Process, args []string) int {
	return Commands{p.Program, p.Machine}.run(ctx, args)
}

func newDaemon(t testing.TB, settings ...string) *clitest.Daemon {
	t.Helper()
	return clitest.New(t, commands, settings...)
}
