package kubeserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"monopod/internal/config"
)

// TestTheCertificateHasTheNameInTheClusterDomain: clients in pods connect to that of the Service, and cluster.local may be another cluster's.
func TestTheCertificateHasTheNameInTheClusterDomain(t *testing.T) {
	t.Parallel()
	for domain, other := range map[string]string{"cluster.local": "corp.example", "corp.example": "cluster.local"} {
		cfg := &config.Loaded{}
		cfg.RootDirectory, cfg.NodeName, cfg.ClusterDomain = t.TempDir(), "edge-1", domain
		a := NewAuthority(cfg, nil, slog.New(slog.DiscardHandler))
		if err := a.EnsureServer(nil); err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(a.ServerFile(), a.ServerFile())
		if err != nil {
			t.Fatal(err)
		}
		const service = "kubernetes.default.svc"
		for name, want := range map[string]bool{service: true, service + "." + domain: true, service + "." + other: false} {
			if got := pair.Leaf.VerifyHostname(name) == nil; got != want {
				t.Errorf("clusterDomain %s, a client of %s: %t", domain, name, got)
			}
		}
	}
}

func TestTheAPIHasTheNamesOfTheMachineAndOfTheConfiguration(t *testing.T) {
	t.Parallel()
	cfg := &config.Loaded{}
	cfg.NodeName, cfg.APIServer.Names = "edge-1", []string{"api.example", "192.0.2.7"}
	machine := func() ([]string, error) { return []string{"10.0.0.1", "fd00::1"}, nil }
	if dns, addresses := apiNames(cfg, machine); fmt.Sprint(dns, addresses) != "[edge-1 api.example] [192.0.2.7 10.0.0.1 fd00::1]" {
		t.Error(dns, addresses)
	}
	cfg.ClusterDomain = "corp.example"
	machine = func() ([]string, error) { return nil, errors.New("no network") }
	if dns, addresses := apiNames(cfg, machine); fmt.Sprint(dns, addresses) != "[edge-1 kubernetes.default.svc.corp.example api.example] [192.0.2.7]" {
		t.Error(dns, addresses)
	}
}
