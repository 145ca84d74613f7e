//go:build e2e

package link_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/linuxns"
	"monopod/runner/ctrd/network"
)

func TestPodsReachEachOtherTheHostAndTheWorld(t *testing.T) {
	netbed.Outside(t)
	b := netbed.New(t, "10.199.1.0/24").Start(t)
	p, pIP := b.Up(t, "a")
	q, qIP := b.Up(t, "b")
	if !strings.HasPrefix(pIP, "10.199.1.") || pIP == qIP {
		t.Fatalf("addresses %s and %s", pIP, qIP)
	}
	netbed.Serve(t, q.NetNS, ":80")
	netbed.Serve(t, "", "10.199.1.1:81")
	netbed.WantAnswer(t, p.NetNS, "tcp", qIP+":80", pIP)
	netbed.WantAnswer(t, p.NetNS, "tcp", "10.199.1.1:81", pIP)
	netbed.WantAnswer(t, "", "tcp", qIP+":80", "10.199.1.1")
	netbed.WantAnswer(t, p.NetNS, "tcp", netbed.OutsideAddr+":80", netbed.UplinkAddr) // masqueraded, through FORWARD DROP
	netbed.WantAnswer(t, p.NetNS, "udp", netbed.OutsideAddr+":80", netbed.UplinkAddr)
	netbed.Serve(t, p.NetNS, "127.0.0.1:82")
	netbed.WantAnswer(t, p.NetNS, "tcp", "127.0.0.1:82", "127.0.0.1") // lo is up
}

func TestFiftyAtOnceLeaveNothing(t *testing.T) {
	b := netbed.New(t, "10.199.3.0/24").Start(t)
	_, _ = b.Up(t, "first", network.PortMapping{HostPort: 9999, ContainerPort: 1})
	before := b.Traces(t)
	pods := make([]network.Pod, 50)
	for i := range pods {
		pods[i] = b.Pod(t, fmt.Sprint("p", i))
		if i%10 == 0 {
			pods[i].PortMappings = []network.PortMapping{{HostPort: int32(10000 + i), ContainerPort: 80}}
		}
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	each := func(fn func(network.Pod) error) time.Duration {
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
	up := each(func(p network.Pod) error {
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
	down := each(func(p network.Pod) error {
		return errors.Join(b.Teardown(t.Context(), p), linuxns.Unpin(filepath.Dir(p.NetNS)))
	})
	t.Logf("50 Setups at once: %v, 50 Teardowns: %v", up, down)
	b.Settles(t, before)
}

func TestBothAddressFamilies(t *testing.T) {
	netbed.Tool(t, "ip6tables", "-P", "FORWARD", "DROP")
	netbed.Outside(t)
	b := netbed.New(t, "fd00:199:14::/64, 10.199.14.0/24").Start(t)
	p := b.Pod(t, "a")
	ips, err := b.Setup(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(ips) != 2 || !strings.HasPrefix(ips[0], "10.199.14.") || !strings.HasPrefix(ips[1], "fd00:199:14::") {
		t.Errorf("addresses %v", ips)
	}
	netbed.WantAnswer(t, p.NetNS, "tcp", netbed.OutsideAddr+":80", netbed.UplinkAddr)
	netbed.WantAnswer(t, p.NetNS, "tcp", "[2001:db8::1]:80", "2001:db8::2")
	if err := b.Teardown(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}
