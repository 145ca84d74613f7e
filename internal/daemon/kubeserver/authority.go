package kubeserver

import (
	"log/slog"
	"net/netip"
	"path/filepath"

	"monopod/internal/config"
	"monopod/node/kubeapi/authority"
)

// NewAuthority returns the certificate authority of the API. machine returns the addresses of this machine; it may be nil.
func NewAuthority(cfg *config.Loaded, machine func() ([]string, error), log *slog.Logger) *authority.Authority {
	return authority.New(authority.Config{
		Dir: filepath.Join(cfg.RootDirectory, "pki", "api"), Names: func() ([]string, []netip.Addr) { return apiNames(cfg, machine) }, Log: log,
	})
}

// AuthorityText returns the CA certificate of the API; empty if the API does not listen.
func AuthorityText(ca *authority.Authority, address string) string {
	if address == "" {
		return ""
	}
	text, err := ca.Bundle()
	if err != nil {
		return ""
	}
	return string(text)
}

// apiNames returns the names and addresses of this machine for the certificate of the API.
func apiNames(cfg *config.Loaded, machine func() ([]string, error)) (dns []string, addresses []netip.Addr) {
	dns = append(dns, cfg.NodeName)
	if cfg.ClusterDomain != "" {
		dns = append(dns, "kubernetes.default.svc."+cfg.ClusterDomain)
	}
	names := cfg.APIServer.Names
	if machine != nil {
		if all, err := machine(); err == nil {
			names = append(append([]string{}, names...), all...)
		}
	}
	for _, name := range names {
		if ip, err := netip.ParseAddr(name); err == nil {
			addresses = append(addresses, ip)
		} else {
			dns = append(dns, name)
		}
	}
	return dns, addresses
}
