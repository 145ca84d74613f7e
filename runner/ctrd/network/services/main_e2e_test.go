//go:build e2e

package services_test

import (
	"testing"

	"monopod/e2e/netbed"
)

func TestMain(m *testing.M) { netbed.Main(m) }
