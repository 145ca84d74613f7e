//go:build !e2e

package repair

import (
	"testing"

	"go.uber.org/goleak"

	"monopod/runner/ctrd/embed/embedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, embedtest.Leftovers()...) }
