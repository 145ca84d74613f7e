package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod/internal/config"
	"monopod/internal/daemon/state"
	"monopod/internal/pause"
	"monopod/node/names"
)

const (
	// gatherNames is how long changes of pods are gathered before the zone is rebuilt. With many pods it is longer, at most longestGather, so that
	// rebuilding takes at most a tenth of the time.
	gatherNames   = 20 * time.Millisecond
	longestGather = time.Second
	// PollInterval is the interval of polling at startup, while nothing announces a change.
	PollInterval = 100 * time.Millisecond
)

// nameService answers the names of pods and Services for the pods on monopod's own bridge.
type nameService struct {
	domain, resolvConf string
	gateways           func() ([]netip.Prefix, error)
	state              *state.Store
	log                *slog.Logger
	// server and sockets are set by listen; nil: the host has its own CNI configuration.
	server  *names.Server
	sockets names.Listening
}

func newNameService(cfg *config.Loaded, d Deps, s *state.Store) *nameService {
	return &nameService{
		domain: cfg.ClusterDomain, resolvConf: cfg.ResolvConf, state: s, log: d.Log,
		gateways: func() ([]netip.Prefix, error) { return d.Machine.Gateways(&cfg.Config) },
	}
}

// addresses returns the addresses of the server; none: pods use other name servers. It must not be called before listen.
func (n *nameService) addresses() []string {
	if n.server == nil {
		return nil
	}
	return n.server.Addresses()
}

// listen opens the sockets. It must return before any pod is created, because pods get the addresses.
func (n *nameService) listen(ctx context.Context) {
	gateways, err := n.gateways()
	if err != nil || len(gateways) == 0 {
		why := "the CNI configuration of the host is used"
		if err != nil {
			why = fmt.Sprint(err)
		}
		n.log.Info("pods cannot resolve each other by name", "reason", why)
		return
	}
	n.server = names.NewServer(names.Config{Domain: n.domain, Gateways: gateways, ResolvConf: n.resolvConf, Log: n.log})
	n.sockets = n.server.Listen(ctx)
}

// run answers until ctx ends.
func (n *nameService) run(ctx context.Context) error {
	if n.server == nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.server.Run(ctx, n.sockets) })
	g.Go(func() error { n.follow(ctx); return nil })
	return g.Wait()
}

// follow updates the zone whenever pods change. The last zone stays while pods cannot be seen.
func (n *nameService) follow(ctx context.Context) {
	changed, stop := n.state.Subscribe()
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
		pods, services, ok := n.state.Endpoints()
		if ok {
			n.server.SetZone(names.NewZone(n.domain, pods, services))
		} else {
			again.Reset(PollInterval)
		}
		pause.For(ctx, max(gatherNames, min(9*time.Since(began), longestGather)))
	}
}
