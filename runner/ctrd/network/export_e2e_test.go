//go:build e2e

package network

import (
	"context"
	"sync"

	"monopod/runner/ctrd/network/nat"
)

// ErrRemoved is errRemoved, for tests outside of this package.
var ErrRemoved = errRemoved

// SetNAT replaces the backend of host ports.
func SetNAT(n *Network, b nat.Backend) { n.own().nat = b }

// SetNotice replaces the receiver of notices.
func SetNotice(n *Network, f func(Notice)) { n.notice = f }

// CheckAll checks and repairs everything.
func CheckAll(ctx context.Context, n *Network) { n.check(ctx, scope{all: true}) }

// Work returns the lock that serializes Init, Destroy and repairs.
func Work(n *Network) *sync.Mutex { return &n.work }
