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
	// EnvPrograms is the directory of findPrograms.
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
	programs, err := findPrograms()
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

// findPrograms returns the directory of the shim, the CNI plugins and containerd: the one in MONOPOD_E2E_BIN, or bin, which it brings up to date.
func findPrograms() (string, error) {
	if dir := os.Getenv("MONOPOD_E2E_BIN"); dir != "" {
		return dir, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	made := exec.Command("make", "--no-print-directory", "shim", "cni", "tools")
	made.Dir = root
	if out, err := made.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w: %s", made.Args, err, out)
	}
	return filepath.Join(root, "bin"), nil
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
