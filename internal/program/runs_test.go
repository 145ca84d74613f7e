package program

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
)

func TestSignalsGoToTheCommandWhileItRuns(t *testing.T) {
	stopped := 0
	i := &Interrupts{Stop: func() { stopped++ }}
	var got []os.Signal
	i.Forward(func(s os.Signal) { got = append(got, s) })
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGINT, syscall.SIGUSR1} {
		if i.Take(s) {
			t.Errorf("%v ends the process", s)
		}
	}
	if len(got) != 3 || stopped != 0 {
		t.Errorf("forwarded: %v, stopped %d times", got, stopped)
	}
	i.Forward(nil)
	if i.Take(syscall.SIGUSR1) || stopped != 0 {
		t.Error("SIGUSR1 is taken for a wish to stop")
	}
	if i.Take(syscall.SIGTERM) || stopped != 1 || i.ExitCode() != 143 {
		t.Errorf("first signal: stopped %d times, exit code %d", stopped, i.ExitCode())
	}
	if !i.Take(syscall.SIGINT) {
		t.Error("the second signal waits")
	}
}

func TestTheLastThingIsDoneAlsoByTheSecondSignal(t *testing.T) {
	i, done := &Interrupts{Stop: func() {}}, 0
	i.AtEnd(func() { done++ })
	if code := i.ExitCode(); code != ExitSignal {
		t.Errorf("exit code %d before any signal", code)
	}
	if i.Take(syscall.SIGINT) || done != 0 {
		t.Error("the first signal does not wait")
	}
	if !i.Take(syscall.SIGTERM) || done != 1 || i.ExitCode() != 130 {
		t.Errorf("second signal: done %d times, exit code %d of the first", done, i.ExitCode())
	}
}

// A program without signals, as in tests of commands, has none to forward.
func TestNoInterrupts(t *testing.T) {
	var i *Interrupts
	i.Forward(func(os.Signal) {})
	i.AtEnd(func() {})
	i.Also(syscall.SIGUSR1)
	if i.ExitCode() != ExitSignal {
		t.Error(i.ExitCode())
	}
}

// What nohup or a script had the process ignore stays ignored.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	signal.Ignore(syscall.SIGUSR1)
	defer signal.Reset(syscall.SIGUSR1)
	i := &Interrupts{signals: make(chan os.Signal, 2), ignored: []os.Signal{syscall.SIGUSR1}, Stop: func() {}}
	defer signal.Stop(i.signals)
	i.Also(syscall.SIGUSR1) // nothing remains: that must not mean all signals
	i.Also(syscall.SIGUSR1, syscall.SIGUSR2)
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2} {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	if s := <-i.signals; s != syscall.SIGUSR2 {
		t.Errorf("%v arrived", s)
	}
}
