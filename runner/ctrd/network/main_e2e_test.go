//go:build e2e

package network

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// TestMain runs the tests in a network and mount namespace of their own, which plays the host: bridges,
// firewall rules and sysctls of the real one are never touched.
func TestMain(m *testing.M) {
	const marker = "NETWORK_TEST_HOST"
	switch {
	case os.Geteuid() != 0:
		fmt.Println("skipped: needs root")
		return
	case os.Getenv(marker) != "":
		if err := becomeHost(); err != nil {
			fmt.Println("cannot set up the test's host namespace:", err)
			os.Exit(1)
		}
		goleak.VerifyTestMain(m)
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), marker+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		fmt.Println(err)
	}
	if err != nil {
		os.Exit(1)
	}
}

func becomeHost() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	// As on a host with Docker, and as on a Kubernetes node.
	for _, args := range [][]string{{"-P", "FORWARD", "DROP"}} {
		if out, err := exec.Command("iptables", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	_ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0)
	return nil
}
