package main

import (
	"testing"

	"go.uber.org/goleak"

	"monopod/internal/daemontest/clitest"
	"monopod/internal/signals"
)

func TestMain(m *testing.M) {
	if clitest.IsDaemon() {
		clitest.ActAsDaemon(clitest.Commands(commands).Execute)
		return
	}
	signals.Adopt() // tests send them to what they start
	goleak.VerifyTestMain(m)
}
