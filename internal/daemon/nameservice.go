package daemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/node/names"
)

// PollInterval is the interval of polling at startup, while nothing announces a change.
const PollInterval = 100 * time.Millisecond

// nameService is the DNS server for pods on monopod's own bridge; it resolves pods and Services.
type nameService struct {
	domain, resolvConf string
	gateways           func() ([]netip.Prefix, error)
	log                *slog.Logger
	// server and sockets are set by listen; nil: a CNI configuration is used.
	server  *names.Server
	sockets names.Listening
}

func newNameService(cfg *config.Loaded, d Deps) *nameService {
	return &nameService{
		domain: cfg.ClusterDomain, resolvConf: cfg.ResolvConf, log: d.Log,
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
		n.log.Info("pods cannot resolve each other by name", "reason", cmp.Or(err, errors.New("the CNI configuration of the host is used (cniConfDir)")))
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
	return n.server.Run(ctx, n.sockets)
}

// follow returns the function that updates the zone, nil if there is no DNS server. It must not be called before listen.
func (n *nameService) follow() func(model.Endpoints) {
	if n == nil || n.server == nil {
		return nil
	}
	return func(e model.Endpoints) {
		n.server.SetZone(names.NewZone(n.domain, e))
	}
}
