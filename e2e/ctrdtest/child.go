//go:build e2e

package ctrdtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"monopod/internal/signals"
	"monopod/runner/ctrd/embed/embedtest"
)

// Environment of child processes.
const (
	// envHost marks the process that plays the host: it has network and mount namespaces of its own, so that
	// bridges, firewall rules and mounts of the real host are never touched.
	envHost = "CTRD_TEST_HOST"
	// EnvAgent names a directory whose agent the process is; see agentMain in runner/ctrd.
	EnvAgent = "CTRD_TEST_AGENT"
	// EnvPrograms is the directory with shim and CNI plugins.
	EnvPrograms = "CTRD_TEST_PROGRAMS"
)

// Main is the TestMain of a package with tests that use a World. agent is the entry of a process that has a path in EnvAgent, with
// that path; a package that starts none passes nil.
func Main(m *testing.M, agent func(path string)) {
	if !ranInChild(agent) {
		signals.Adopt() // what tests start must not inherit them
		goleak.VerifyTestMain(m, leakOptions()...)
	}
}

// ranInChild returns true when the tests ran in a child.
func ranInChild(agent func(path string)) bool {
	switch {
	case os.Geteuid() != 0:
		fmt.Println("skipped: needs root")
		return true
	case os.Getenv(EnvAgent) != "":
		agent(os.Getenv(EnvAgent))
		return true
	case os.Getenv(envHost) != "":
		if err := becomeHost(); err != nil {
			fmt.Println("cannot set up the test's host:", err)
			os.Exit(1)
		}
		return false
	}
	programs, err := buildPrograms()
	if err != nil {
		fmt.Println("cannot build what the tests need:", err)
		os.Exit(1)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), envHost+"=1", EnvPrograms+"="+programs)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if err := cmd.Run(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return true
}

func becomeHost() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// buildPrograms builds the shim and the CNI plugins into a directory that all test programs share: what is up to date is not built again.
func buildPrograms() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache", "ctrdtest")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	build := func(args ...string) error {
		cmd := exec.Command("go", append([]string{"build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w"}, args...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %v: %w: %s", args, err, out)
		}
		return nil
	}
	if err := build("-tags", "no_grpc", "-o", filepath.Join(dir, "containerd-shim-monopod-v2"), "./cmd/containerd-shim-monopod-v2"); err != nil {
		return "", err
	}
	if err := build("-modfile=internal/bundle/modules/containerd.mod", "-o", filepath.Join(dir, "containerd"),
		"github.com/containerd/containerd/v2/cmd/containerd"); err != nil {
		return "", err
	}
	const plugins = "github.com/containernetworking/plugins/plugins/"
	for name, path := range map[string]string{
		"bridge": "main/bridge", "loopback": "main/loopback", "host-local": "ipam/host-local", "portmap": "meta/portmap",
	} {
		if err := build("-modfile=internal/bundle/modules/cni.mod", "-o", filepath.Join(dir, name), plugins+path); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// moduleRoot returns the directory of go.mod.
func moduleRoot() (string, error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(mod))), nil
}

// leakOptions ignore the connections to shims, which containerd cannot close without killing their containers.
func leakOptions() []goleak.Option {
	return append(embedtest.Leftovers(),
		goleak.IgnoreAnyFunction("github.com/containerd/ttrpc.(*Client).run"),
		goleak.IgnoreAnyFunction("github.com/containerd/ttrpc.(*receiveLoop).run"),
		goleak.IgnoreAnyFunction("github.com/containerd/containerd/v2/core/runtime/v2.loadShim.func2"),
		goleak.IgnoreAnyFunction("github.com/containerd/fifo.openFifo.func2"),
	)
}
