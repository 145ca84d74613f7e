package runner_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// BenchmarkConverge brings pods up on the fake.
func BenchmarkConverge(b *testing.B) {
	for _, n := range []int{1000, 2000, 5000, 10000} {
		pods := servers(n)
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			for b.Loop() {
				converge(b, pods)
			}
		})
	}
}

func converge(b *testing.B, pods []*manifests.Pod) {
	b.Helper()
	fake := runtimetest.NewFake()
	pool := runner.NewPool(fake, runner.Config{NodeName: "node"})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- pool.Run(ctx) }()
	pool.Update(runner.Desired{Pods: pods})
	up := map[manifests.Key]bool{}
	enough := errors.New("all run")
	err := pool.Watch(ctx, func(c runner.Change) error {
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
