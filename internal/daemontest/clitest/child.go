package clitest

import (
	"context"
	"os"
	"os/exec"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/program"
	"monopod/node/capacity"
	"monopod/node/netinfo"
	"monopod/runner/runtimetest"
)

// actAsMonopod makes a test program a daemon with a fake runtime; its value is the path of the configuration file. With actStuck that runtime
// does not close.
const (
	actAsMonopod = "TEST_ACT_AS_MONOPOD"
	actStuck     = "TEST_STUCK"
)

// IsDaemon reports whether this process was started by Child.
func IsDaemon() bool { return os.Getenv(actAsMonopod) != "" }

// ActAsDaemon is the main function of a process that was started by Child.
func ActAsDaemon(execute func(p *Process, args []string) int) {
	p := &Process{Program: &program.Program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: config.OSEnvironment(), Euid: func() int { return 0 }}}
	p.Machine.Addresses, p.Machine.Capacity = netinfo.Addresses, capacity.Read
	p.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		fake := runtimetest.NewFake()
		fake.Forgetful = true
		return &daemontest.FakeRuntime{Fake: fake, Stuck: os.Getenv(actStuck) != ""}, nil
	}
	os.Exit(execute(p, []string{"run", "--config", os.Getenv(actAsMonopod)}))
}

// Execute executes a command line as the main function of monopod does, until it ends or a signal ends it.
func (c Commands) Execute(p *Process, args []string) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	p.Signals = program.NewInterrupts(stop)
	go p.Signals.Run()
	return c(ctx, p, args)
}

// Child returns the command line of the daemon in a process of its own, which is this test program. The arguments come before it: a program
// that starts it, with its own arguments; "{}" stands for the path of the test program. The runtime of a stuck daemon does not close.
func (d *Daemon) Child(stuck bool, starter ...string) *exec.Cmd {
	d.T.Helper()
	exe, err := os.Executable()
	if err != nil {
		d.T.Fatal(err)
	}
	words := []string{exe}
	if len(starter) > 0 {
		words = starter
		for i, w := range words {
			if w == "{}" {
				words[i] = exe
			}
		}
	}
	child := exec.Command(words[0], words[1:]...) //nolint:gosec // this program, or a shell of a test
	child.Env = append(os.Environ(), actAsMonopod+"="+d.Path("config.yaml"))
	if stuck {
		child.Env = append(child.Env, actStuck+"=1")
	}
	child.Stderr = d.Log
	return child
}
