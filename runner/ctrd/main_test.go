package ctrd

import (
	"testing"

	"go.uber.org/goleak"

	"monopod/internal/signals"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	signals.Adopt() // what tests start must not inherit them
	goleak.VerifyTestMain(m, leakOptions()...)
}
