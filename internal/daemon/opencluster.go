package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"

	"monopod/internal/config"
	"monopod/internal/daemon/cluster"
	"monopod/internal/daemon/sources"
	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/authority"
	"monopod/watcher"
	"monopod/watcher/emptied"
)

// OpenCluster is OpenRun for a run whose pods also come from clients of its Kubernetes API, which listens on a free port of 127.0.0.1, until Forget. The
// Node has the resources of the machine, which pods may exceed as in other runs.
func OpenCluster(cfg *config.Loaded, d Deps, source watcher.Source) (*Daemon, error) {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listener of the Kubernetes API: %w", err)
	}
	own := *cfg
	own.APIServer.Address = ln.Addr().String()
	a, err := openCluster(&own, d, source, ln)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return a, nil
}

func openCluster(cfg *config.Loaded, d Deps, source watcher.Source, ln net.Listener) (*Daemon, error) {
	c, err := newCore(cfg, d)
	if err != nil {
		return nil, err
	}
	m := &machineParts{labels: cluster.Selection(cfg), applier: newApplier(c), scheduler: c.gate, listener: ln, roomy: true}
	if d.Machine.Capacity != nil {
		if _, err := m.find(c); err != nil {
			return nil, err
		}
	}
	applied := emptied.Of(sources.Applied(cfg, sources.Deps{Log: d.Log, Applied: c.applied}))
	m.sources = []watcher.Source{source, applied}
	a, err := assemble(c, m)
	if err == nil {
		a.forget = applied.Empty
	}
	return a, err
}

// Serves reports whether the Kubernetes API is ready, like its /readyz.
func (a *Daemon) Serves() bool {
	_, unseen := a.kube.state.Objects(context.Background())
	return len(unseen) == 0
}

// Kubeconfig returns an admin kubeconfig for the Kubernetes API, which must be listening.
func (a *Daemon) Kubeconfig() ([]byte, error) {
	return a.kube.authority.Kubeconfig(authority.Client{
		User: access.RoleAdmin, Groups: []string{access.GroupOf(access.RoleAdmin)}, Server: authority.ServerURL(a.cfg.APIServer.Address), Cluster: a.cfg.NodeName,
	})
}

// Forget removes all objects created by clients of a cluster, and ignores later ones.
func (a *Daemon) Forget() {
	if a.forget != nil {
		a.forget()
	}
}
