//go:build e2e

package hostports_test

import (
	"errors"
	"testing"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/network/hostports"
)

func TestHostPortsOfOtherMonopodsAreRefused(t *testing.T) {
	dir := t.TempDir()
	claims := func(c *network.Config) { c.PortsDir = dir }
	one, two := netbed.In(t, t.TempDir(), "10.199.37.0/24", claims).Start(t), netbed.In(t, t.TempDir(), "10.199.38.0/24", claims).Start(t)
	port := network.PortMapping{HostPort: 8080, ContainerPort: 80}
	p, _ := one.Up(t, "web", port)
	q := two.Pod(t, "web2", port)
	_, err := two.Setup(t.Context(), q)
	if held := new(hostports.HeldError); !errors.As(err, &held) || held.Pod != "default/p-web" {
		t.Fatalf("%v", err)
	}
	// kill -9 of the first monopod: another process, which knows nothing.
	again := netbed.In(t, one.Dir, "10.199.37.0/24", claims)
	if _, err := two.Setup(t.Context(), q); err == nil {
		t.Fatal("the port of a pod whose monopod died was given away")
	}
	if err := errors.Join(again.Init(t.Context()), again.Adopt([]network.Pod{p}), again.Teardown(t.Context(), p)); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Setup(t.Context(), q); err != nil {
		t.Errorf("the port is free: %v", err)
	}
	if err := two.Teardown(t.Context(), q); err != nil {
		t.Fatal(err)
	}
}
