//go:build e2e

package ctrdtest

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner/pool"
)

// Stage is a pool on a real runtime, with manifests.
type Stage struct {
	*Agent
	T    *testing.T
	Pool *pool.Pool
	Stop func()
}

// Stage opens a Runtime and runs a pool on it.
func (w *World) Stage(t *testing.T) *Stage {
	t.Helper()
	s := &Stage{Agent: w.Open(t), T: t}
	s.Pool = pool.New(s.Agent, pool.Config{
		Log: w.Log, Follow: func(d model.Desired, o *manifests.Objects) { s.Removal.FollowObjects(o, d.Removable) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Pool.Run(ctx) }()
	s.Stop = func() {
		cancel()
		Check(t, <-done)
	}
	return s
}

// Play applies the manifests.
func (s *Stage) Play(docs ...string) {
	s.T.Helper()
	c, err := decode.All("/x/all.yaml", []byte(strings.Join(docs, "\n---\n")), decode.Options{Source: "file"})
	Check(s.T, err)
	s.Pool.Update(model.Desired{
		Pods: c.Pods, Objects: c.Objects, Reported: map[string]bool{"file": true},
	})
}

// Close removes all pods.
func (s *Stage) Close() {
	s.T.Helper()
	s.Play("# nothing")
	Within(s.T, 30*time.Second, "all pods are gone", func() bool { return len(s.Pool.Pods()) == 0 })
	s.Stop()
	s.End(s.T)
}

// Why returns the waiting reason of the first container, and what the pod says about itself.
func (s *Stage) Why(name string) (reason, why string) {
	for _, p := range s.Pool.Pods() {
		if p.Pod.Name != name {
			continue
		}
		if c := p.Pod.Status.ContainerStatuses; len(c) > 0 && c[0].State.Waiting != nil {
			reason = c[0].State.Waiting.Reason
		}
		return reason, p.Why
	}
	return "", ""
}

// Output returns what the newest container of a pod has written.
func (s *Stage) Output(name string) string {
	key := manifests.Key{Namespace: "default", Name: name}
	all := s.Index.OfPod(key)
	if len(all) == 0 {
		return ""
	}
	data, _ := os.ReadFile(all[len(all)-1].Meta.LogPath)
	var lines []string
	for line := range strings.Lines(string(data)) {
		if words := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4); len(words) == 4 {
			lines = append(lines, words[3])
		}
	}
	return strings.Join(lines, "\n")
}

// WaitOutput waits until a pod has written a text.
func (s *Stage) WaitOutput(name, want string) {
	s.T.Helper()
	got := ""
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if got = s.Output(name); strings.Contains(got, want) {
			return
		}
	}
	reason, why := s.Why(name)
	s.T.Fatalf("pod %s has not written %q but %q (%s %s)", name, want, got, reason, why)
}
