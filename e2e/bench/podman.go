package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// podman runs each manifest by a command: it has no agent.
type podman struct {
	dir, stamps string
	options     []string
	// last is what the last command that failed said.
	last string
}

func startPodman(ctx context.Context, b *bench) (subject, error) {
	p := &podman{dir: filepath.Join(b.work, "podman"), stamps: b.stamps}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, err
	}
	p.options = []string{
		"--root", filepath.Join(p.dir, "root"), "--runroot", filepath.Join(b.state, "podman"), "--cgroup-manager", "cgroupfs", "--events-backend", "file",
		"--runtime", "runc", // which the others use
	}
	return p, p.run(ctx, "load", "-i", filepath.Join(b.images, "stamp.tar"))
}

func (p *podman) run(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "podman", append(p.options, args...)...).CombinedOutput()
	if err != nil {
		p.last = fmt.Sprintf("podman %s: %v: %s", strings.Join(args, " "), err, out)
		return fmt.Errorf("podman %s: %w: %s", args[0], err, out)
	}
	return nil
}

func (p *podman) file(name string) string { return filepath.Join(p.dir, name+".yaml") }

// put implements subject. It returns once the pod runs.
func (p *podman) put(name, network string, generation int) time.Duration {
	if err := os.WriteFile(p.file(name), []byte(manifest(name, network, generation, p.stamps)), 0o644); err != nil {
		panic(err) // a directory we just made
	}
	t0 := monotonic()
	_ = p.run(context.Background(), "kube", "play", "--replace", p.file(name)) // then no process comes, which is an error
	return t0
}

// drop implements subject. It returns once the pod is gone.
func (p *podman) drop(name string) time.Duration {
	t0 := monotonic()
	_ = p.run(context.Background(), "kube", "down", p.file(name)) // then the process stays, which is an error
	return t0
}

// stop implements subject.
func (p *podman) stop() error { return p.run(context.Background(), "pod", "rm", "--all", "--force") }

// logTail implements subject.
func (p *podman) logTail() string { return p.last }
