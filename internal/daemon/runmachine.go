package daemon

import (
	"context"

	"monopod/internal/config"
)

// RunMachine is what runs of once and up need of the machine. Tests replace it.
type RunMachine struct {
	// SubnetLocks is a file each of whose bytes stands for a subnet. A run locks the byte of its subnet.
	SubnetLocks string
	// Free returns an error if a subnet overlaps a network of the machine.
	Free func(podCIDR string) error
	// Keep starts a daemon for the pods that `once` leaves.
	Keep func(ctx context.Context, cfg *config.Loaded, configFile string) error
}
