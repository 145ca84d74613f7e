//go:build e2e

package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/linuxns"
)

func TestPodsReachEachOtherTheHostAndTheWorld(t *testing.T) {
	outside(t)
	b := newBed(t, "10.199.1.0/24").init(t)
	p, pIP := b.up(t, "a")
	q, qIP := b.up(t, "b")
	if !strings.HasPrefix(pIP, "10.199.1.") || pIP == qIP {
		t.Fatalf("addresses %s and %s", pIP, qIP)
	}
	serve(t, q.NetNS, ":80")
	serve(t, "", "10.199.1.1:81")
	wantAnswer(t, p.NetNS, "tcp", qIP+":80", pIP)
	wantAnswer(t, p.NetNS, "tcp", "10.199.1.1:81", pIP)
	wantAnswer(t, "", "tcp", qIP+":80", "10.199.1.1")
	wantAnswer(t, p.NetNS, "tcp", outsideAddr+":80", uplinkAddr) // masqueraded, through FORWARD DROP
	wantAnswer(t, p.NetNS, "udp", outsideAddr+":80", uplinkAddr)
	serve(t, p.NetNS, "127.0.0.1:82")
	wantAnswer(t, p.NetNS, "tcp", "127.0.0.1:82", "127.0.0.1") // lo is up
}

func TestHostPortsWorkFromEverywhere(t *testing.T) {
	out := outside(t)
	b := newBed(t, "10.199.2.0/24").init(t)
	other, _ := b.up(t, "other")
	before := b.traces(t)
	p, _ := b.up(t, "web",
		PortMapping{HostPort: 8080, ContainerPort: 80, Protocol: "TCP"},
		PortMapping{HostPort: 8053, ContainerPort: 80, Protocol: "UDP"},
		PortMapping{HostPort: 8081, ContainerPort: 80, Protocol: "TCP", HostIP: "127.0.0.1"},
		PortMapping{ContainerPort: 99})
	stop := serve(t, p.NetNS, ":80")
	for _, from := range []struct{ netns, addr string }{
		{"", "127.0.0.1"},
		{"", uplinkAddr},
		{"", "10.199.2.1"},
		{other.NetNS, uplinkAddr},
		{other.NetNS, "10.199.2.1"},
		{p.NetNS, uplinkAddr}, // hairpin: to itself
		{out, uplinkAddr},
	} {
		wantAnswer(t, from.netns, "tcp", from.addr+":8080", "*")
		wantAnswer(t, from.netns, "udp", from.addr+":8053", "*")
	}
	wantAnswer(t, "", "tcp", "127.0.0.1:8081", "*")
	if _, err := ask(t, "", "tcp", uplinkAddr+":8081"); err == nil {
		t.Error("a port for 127.0.0.1 is open on another address")
	}
	if err := b.Teardown(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, "", "tcp", "127.0.0.1:8080"); err == nil {
		t.Error("the port is still open after Teardown")
	}
	stop()
	b.unpin(t, p)
	b.settles(t, before)
	p2, _ := b.up(t, "web2", PortMapping{HostPort: 8080, ContainerPort: 80})
	if err := b.Teardown(t.Context(), p2); err != nil {
		t.Fatal(err)
	}
	b.unpin(t, p2)
	b.settles(t, before)
}

func TestFiftyAtOnceLeaveNothing(t *testing.T) {
	b := newBed(t, "10.199.3.0/24").init(t)
	_, _ = b.up(t, "first", PortMapping{HostPort: 9999, ContainerPort: 1})
	before := b.traces(t)
	pods := make([]Pod, 50)
	for i := range pods {
		pods[i] = b.pod(t, fmt.Sprint("p", i))
		if i%10 == 0 {
			pods[i].PortMappings = []PortMapping{{HostPort: int32(10000 + i), ContainerPort: 80}}
		}
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	each := func(fn func(Pod) error) time.Duration {
		start := time.Now()
		var wg sync.WaitGroup
		for _, p := range pods {
			wg.Go(func() {
				if err := fn(p); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	up := each(func(p Pod) error {
		ips, err := b.Setup(t.Context(), p)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && seen[ips[0]] {
			err = fmt.Errorf("address %s was given twice", ips[0])
		}
		if err == nil {
			seen[ips[0]] = true
		}
		return err
	})
	down := each(func(p Pod) error {
		return errors.Join(b.Teardown(t.Context(), p), linuxns.Unpin(filepath.Dir(p.NetNS)))
	})
	t.Logf("50 Setups at once: %v, 50 Teardowns: %v", up, down)
	b.settles(t, before)
}

func TestTeardownWorksWithWhateverIsLeft(t *testing.T) {
	port := PortMapping{HostPort: 9090, ContainerPort: 80}
	tests := []struct {
		name   string
		damage func(t *testing.T, b *bed, p Pod) *bed
	}{
		{"all is there", func(_ *testing.T, b *bed, _ Pod) *bed { return b }},
		{"the namespace is gone", func(t *testing.T, b *bed, p Pod) *bed {
			t.Helper()
			if err := linuxns.Unpin(filepath.Dir(p.NetNS)); err != nil {
				t.Fatal(err)
			}
			return b
		}},
		{"after a reboot its pin is a plain file", func(t *testing.T, b *bed, p Pod) *bed {
			t.Helper()
			if err := unix.Unmount(p.NetNS, 0); err != nil {
				t.Fatal(err)
			}
			return b
		}},
		{"a new process before Init", func(t *testing.T, b *bed, _ Pod) *bed {
			t.Helper()
			return bedIn(t, b.dir, "10.199.4.0/24")
		}},
		{"the configuration is another one meanwhile", func(t *testing.T, b *bed, _ Pod) *bed {
			t.Helper()
			writeForeign(t, b, "10-x.conflist", `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"loopback"}]}`)
			b = bedIn(t, b.dir, "10.199.4.0/24")
			if err := b.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			return b
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t, "10.199.4.0/24").init(t)
			before := b.traces(t)
			p := b.pod(t, "x", port)
			if _, err := b.Setup(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if b.traces(t) == before {
				t.Fatal("the traces of a pod are not seen by this test")
			}
			now := tt.damage(t, b, p)
			for range 2 {
				if err := now.Teardown(t.Context(), p); err != nil {
					t.Error(err)
				}
			}
			b.unpin(t, p)
			b.settles(t, before)
		})
	}
}

func writeForeign(tb testing.TB, b *bed, name, conf string) {
	tb.Helper()
	path := filepath.Join(b.dir, "net.d", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		tb.Fatal(err)
	}
}
