// Package nettest is test support: it runs the tests of a package in network and mount namespaces of their own.
//
// Such tests must not touch bridges, firewall rules, mounts and sysctls of the host.
package nettest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/linuxns"
)

// Main is the TestMain of a package. It executes the test program again in new namespaces, calls setup there and runs the tests.
func Main(m *testing.M, setup func() error) {
	const marker = "NETWORK_TEST_HOST"
	switch {
	case os.Geteuid() != 0:
		fmt.Println("skipped: needs root")
		return
	case os.Getenv(marker) != "":
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), linuxns.LoopbackUp(), setup()); err != nil {
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
