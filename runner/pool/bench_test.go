package pool_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/pool"
	"monopod/runner/runtimetest"
)

// BenchmarkConverge starts pods on the fake.
func BenchmarkConverge(b *testing.B) {
	first := 0.0
	for _, n := range []int{1000, 3000, 10000} {
		pods := servers(n)
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			used := cpuTime(b)
			for b.Loop() {
				converge(b, pods)
			}
			each := (cpuTime(b) - used).Seconds() / float64(b.N) / float64(n)
			if first == 0 {
				first = each
			}
			b.ReportMetric(each*1e6, "cpu-µs/pod")
			b.ReportMetric(each/first, "x-cpu/pod") // 1.00: the same as for the smallest number
		})
	}
}

// cpuTime returns the CPU time of this process, which depends little on other load of the machine.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func converge(b *testing.B, pods []*manifests.Pod) {
	b.Helper()
	fake := runtimetest.NewFake()
	p := pool.New(fake, pool.Config{NodeName: "node"})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	p.Update(model.Desired{Pods: pods})
	up := map[manifests.Key]bool{}
	enough := errors.New("all run")
	err := p.Watch(ctx, func(c pool.Change) error {
		if up[c.Key] = c.Status.Pod.Status.Phase == corev1.PodRunning; !up[c.Key] {
			delete(up, c.Key)
		}
		if len(up) == len(pods) {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		b.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
