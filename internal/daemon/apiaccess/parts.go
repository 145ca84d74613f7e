package apiaccess

import (
	"log/slog"
	"net/netip"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/kubeserver"
	"monopod/internal/daemon/kubewrite"
	"monopod/internal/daemon/state"
	"monopod/manifests"
	"monopod/node/kubeapi/authority"
	"monopod/node/kubeapi/tokens"
	"monopod/runner/podstatus"
	"monopod/watcher/applied"
)

// Deps is what Open needs in addition to the configuration.
type Deps struct {
	State   *state.Store
	Applied *applied.Store
	// Service is Config.Service.
	Service func() netip.AddrPort
	// Addresses returns the addresses of this machine, Gateways those on the pod network. Both may be nil.
	Addresses func() ([]string, error)
	Gateways  func(*config.Config) ([]netip.Prefix, error)
	Log       *slog.Logger
}

// Parts are shared by the Kubernetes API and the pods that use it.
type Parts struct {
	// Authority issues the certificates of the API, Issuer signs its tokens, Kept holds the objects that only the API stores.
	Authority *authority.Authority
	Issuer    *tokens.Issuer
	Kept      *kubewrite.OwnObjects
	Access    *Access
}

// Open returns the parts for a configuration. It does no I/O.
func Open(cfg *config.Loaded, d Deps) *Parts {
	p := &Parts{Issuer: tokens.New(tokens.Config{Dir: filepath.Join(cfg.RootDirectory, "pki", "api"), Log: d.Log}), Kept: kubewrite.NewMemory(d.Applied)}
	c := Config{
		Address: cfg.APIServer.Address, Issuer: p.Issuer, Service: d.Service, Log: d.Log,
		RootCA: func() string { return kubeserver.AuthorityText(p.Authority, cfg.APIServer.Address) },
		Pods: func() ([]podstatus.Status, bool) {
			_, pods, complete := d.State.Current()
			return pods, complete
		},
		Account: p.account,
	}
	c.Wanted = func() {
		p.Authority.NamesChanged() // the Service exists from now on
		d.State.Notify()
	}
	if d.Gateways != nil {
		c.Gateways = func() ([]netip.Prefix, error) { return d.Gateways(&cfg.Config) }
	}
	p.Access = New(c)
	p.Authority = kubeserver.NewAuthority(cfg, func() (all []string, err error) {
		if d.Addresses != nil {
			all, err = d.Addresses()
		}
		for _, ip := range p.Access.Names() {
			all = append(all, ip.String())
		}
		return all, err
	}, d.Log)
	return p
}

// account returns a service account that a client created, nil if none has that name.
func (p *Parts) account(namespace, name string) *corev1.ServiceAccount {
	account, _ := p.Kept.Object(manifests.ObjectID{Kind: "ServiceAccount", Namespace: namespace, Name: name}).(*corev1.ServiceAccount)
	return account
}
