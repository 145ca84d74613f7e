//go:build e2e

package sandbox_test

import (
	"testing"

	"monopod/e2e/ctrdtest"
)

func TestMain(m *testing.M) { ctrdtest.Main(m, nil) }
