package program

import (
	"os"
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
