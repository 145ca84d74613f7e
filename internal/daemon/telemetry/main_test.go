package telemetry

import (
	"testing"

	"go.uber.org/goleak"

	"monopod/internal/signals"
)

func TestMain(m *testing.M) {
	signals.Adopt() // tests send them to what they start
	goleak.VerifyTestMain(m)
}
