//go:build e2e

package network_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/network/bridge"
)

// BenchmarkPod measures ADD and DEL of the default network and of a configuration of plug-ins, with unpinning; the cpu figures are of all
// processes they start too.
func BenchmarkPod(b *testing.B) {
	port := network.PortMapping{HostPort: 9000, ContainerPort: 80}
	b.Run("own", func(b *testing.B) { benchmarkPod(b, netbed.New(b, "10.199.20.0/24").Start(b)) })
	b.Run("own,hostPort", func(b *testing.B) { benchmarkPod(b, netbed.New(b, "10.199.20.0/24").Start(b), port) })
	for name, ports := range map[string][]network.PortMapping{"ipMasq+portmap+loopback": nil, "ipMasq+portmap+loopback,hostPort": {port}} {
		b.Run(name, func(b *testing.B) {
			n := netbed.New(b, "")
			writeForeign(b, n, "10-classic.conflist", `{"cniVersion":"1.0.0","name":"classic","plugins":[
				{"type":"bridge","bridge":"classic0","isGateway":true,"ipMasq":true,"hairpinMode":true,
				 "ipam":{"type":"host-local","dataDir":"`+n.Dir+`/hl","subnet":"10.199.21.0/24","routes":[{"dst":"0.0.0.0/0"}]}},
				{"type":"portmap","capabilities":{"portMappings":true}}, {"type":"loopback"}]}`)
			if err := n.Init(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = bridge.DeleteDevice("classic0") })
			benchmarkPod(b, n, ports...)
		})
	}
}

func benchmarkPod(b *testing.B, n *netbed.Bed, ports ...network.PortMapping) {
	b.Helper()
	var add, del, addCPU, delCPU time.Duration
	i := 0
	for b.Loop() {
		i++
		p := n.Pod(b, fmt.Sprint("bench", i), ports...)
		start, cpu := time.Now(), cpuTime(b)
		if _, err := n.Setup(b.Context(), p); err != nil {
			b.Fatal(err)
		}
		add += time.Since(start)
		addCPU += cpuTime(b) - cpu
		start, cpu = time.Now(), cpuTime(b)
		if err := n.Teardown(b.Context(), p); err != nil {
			b.Fatal(err)
		}
		n.Unpin(b, p) // the link goes with it
		del += time.Since(start)
		delCPU += cpuTime(b) - cpu
	}
	for name, d := range map[string]time.Duration{"add-ms": add, "del-ms": del, "add-cpu-ms": addCPU, "del-cpu-ms": delCPU} {
		b.ReportMetric(float64(d.Microseconds())/1000/float64(i), name)
	}
}

func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			tb.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}
