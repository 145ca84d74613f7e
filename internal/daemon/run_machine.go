package daemon

import (
	"context"

	"monopod/internal/config"
)

// RunMachine is what runs need of the machine; tests replace it.
type RunMachine struct {
	// SubnetLocks is a file whose bytes stand for subnets: one that is locked is in use by a run.
	SubnetLocks string
	// Free returns an error when a subnet overlaps what the machine has.
	Free func(podCIDR string) error
	// Keep starts the agent that looks after the pods that `once` leaves.
	Keep func(ctx context.Context, cfg *config.Loaded, configFile string) error
}
