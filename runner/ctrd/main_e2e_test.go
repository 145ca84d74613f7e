//go:build e2e

package ctrd_test

import (
	"testing"

	"monopod/e2e/ctrdtest"
)

func TestMain(m *testing.M) { ctrdtest.Main(m, agentMain) }
