//go:build !e2e

package ctrd

import "go.uber.org/goleak"

// childMain is the entry of child processes, which only e2e tests start.
func childMain() bool { return false }

func leakOptions() []goleak.Option { return nil }
