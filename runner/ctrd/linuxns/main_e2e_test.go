//go:build e2e

package linuxns_test

import (
	"testing"

	"monopod/e2e/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m, func() error { return nil }) }
