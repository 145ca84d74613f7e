//go:build e2e

package network_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/linuxns"
	"monopod/runner/ctrd/network"
)

func TestTeardownWorksWithWhateverIsLeft(t *testing.T) {
	port := network.PortMapping{HostPort: 9090, ContainerPort: 80}
	tests := []struct {
		name   string
		damage func(t *testing.T, b *netbed.Bed, p network.Pod) *netbed.Bed
	}{
		{"all is there", func(_ *testing.T, b *netbed.Bed, _ network.Pod) *netbed.Bed { return b }},
		{"the namespace is gone", func(t *testing.T, b *netbed.Bed, p network.Pod) *netbed.Bed {
			t.Helper()
			if err := linuxns.Unpin(filepath.Dir(p.NetNS)); err != nil {
				t.Fatal(err)
			}
			return b
		}},
		{"after a reboot its pin is a plain file", func(t *testing.T, b *netbed.Bed, p network.Pod) *netbed.Bed {
			t.Helper()
			if err := unix.Unmount(p.NetNS, 0); err != nil {
				t.Fatal(err)
			}
			return b
		}},
		{"a new process before Init", func(t *testing.T, b *netbed.Bed, _ network.Pod) *netbed.Bed {
			t.Helper()
			return netbed.In(t, b.Dir, "10.199.4.0/24")
		}},
		{"the configuration is another one meanwhile", func(t *testing.T, b *netbed.Bed, _ network.Pod) *netbed.Bed {
			t.Helper()
			writeForeign(t, b, "10-x.conflist", `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"loopback"}]}`)
			b = netbed.In(t, b.Dir, "10.199.4.0/24")
			if err := b.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			return b
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := netbed.New(t, "10.199.4.0/24").Start(t)
			before := b.Traces(t)
			p := b.Pod(t, "x", port)
			if _, err := b.Setup(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if b.Traces(t) == before {
				t.Fatal("the traces of a pod are not seen by this test")
			}
			now := tt.damage(t, b, p)
			for range 2 {
				if err := now.Teardown(t.Context(), p); err != nil {
					t.Error(err)
				}
			}
			b.Unpin(t, p)
			b.Settles(t, before)
		})
	}
}

func writeForeign(tb testing.TB, b *netbed.Bed, name, conf string) {
	tb.Helper()
	path := filepath.Join(b.Dir, "net.d", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		tb.Fatal(err)
	}
}
