package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod/internal/config"
	"monopod/internal/pause"
	"monopod/node/names"
	"monopod/runner/ctrd/network"
)

const (
	// gatherNames is how long changes of pods are gathered before the names follow: many start at once. Of thousands it is
	// longer, up to longestGather, so that no more than a tenth of the time goes into names.
	gatherNames   = 20 * time.Millisecond
	longestGather = time.Second
	// LookAgain is how often is asked, when the agent starts, whether all pods are known.
	LookAgain = 100 * time.Millisecond
)

// ResolverGateways returns the addresses of monopod's own bridge; none when the host has its own network.
func ResolverGateways(cfg *config.Config) ([]netip.Prefix, error) {
	return network.Gateways(network.Config{ConfDir: cfg.CNIConfDir, BinDirs: newFinder().cniDirs(cfg.CNIBinDirs), PodCIDR: cfg.PodCIDR})
}

// nameServers returns where the resolver listens now.
func (a *App) nameServers() []string {
	if a.resolver == nil {
		return nil
	}
	return a.resolver.Addresses()
}

// startResolver listens before any pod is made, so that each is told where to ask.
func (a *App) startResolver(ctx context.Context, g *errgroup.Group) {
	gateways, err := a.machine.Gateways(&a.cfg.Config)
	if err != nil || len(gateways) == 0 {
		why := "the CNI configuration of the host is used"
		if err != nil {
			why = fmt.Sprint(err)
		}
		a.Log.Info("pods do not find each other by name", "reason", why)
		return
	}
	a.resolver = names.NewServer(names.Config{Domain: a.cfg.ClusterDomain, Gateways: gateways, ResolvConf: a.cfg.ResolvConf, Log: a.Log})
	sockets := a.resolver.Listen(ctx)
	g.Go(func() error { return a.resolver.Run(ctx, sockets) })
	g.Go(func() error { a.followNames(ctx); return nil })
}

// followNames keeps the resolver's names those of the pods there are. What was known last stays while nothing can
// be seen.
func (a *App) followNames(ctx context.Context) {
	changed, stop := a.Board.Subscribe()
	defer stop()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again.C:
		}
		began := time.Now()
		pods, services, ok := a.Board.Endpoints()
		if ok {
			a.resolver.SetZone(names.NewZone(a.cfg.ClusterDomain, pods, services))
		} else {
			again.Reset(LookAgain)
		}
		pause.For(ctx, max(gatherNames, min(9*time.Since(began), longestGather)))
	}
}
