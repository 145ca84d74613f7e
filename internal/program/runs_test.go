package program

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// timeout(1) sends its signal twice within milliseconds: to the process, and to its group.
func TestASignalThatFollowsAtOnceIsTheFirstOneAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped, done := 0, 0
		i := &Interrupts{Stop: func() { stopped++ }}
		i.AtEnd(func() { done++ })
		for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGINT, syscall.SIGTERM} {
			if i.Take(s) {
				t.Errorf("%v ends the process at once", s)
			}
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(repeat - 16*time.Millisecond)
		if i.Take(syscall.SIGINT) || stopped != 1 || done != 0 {
			t.Errorf("within a second: stopped %d times, ended %d times", stopped, done)
		}
		time.Sleep(time.Millisecond)
		if !i.Take(syscall.SIGTERM) || done != 1 || i.ExitCode() != 130 {
			t.Errorf("after a second: ended %d times, exit code %d", done, i.ExitCode())
		}
		i.AtEnd(nil)
		if !i.Take(syscall.SIGTERM) || done != 1 {
			t.Errorf("nothing is left: ended %d times", done)
		}
	})
}

func TestSignalsGoToTheCommandWhileItRuns(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	stopped := 0
	i := &Interrupts{Stop: func() { stopped++ }, Now: func() time.Time { return now }}
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
	now = now.Add(repeat)
	if !i.Take(syscall.SIGINT) {
		t.Error("the second signal waits")
	}
}

func TestTheLastThingIsDoneAlsoByTheSecondSignal(t *testing.T) {
	now, done := time.Unix(1_700_000_000, 0), 0
	i := &Interrupts{Stop: func() {}, Now: func() time.Time { return now }}
	i.AtEnd(func() { done++ })
	if code := i.ExitCode(); code != ExitSignal {
		t.Errorf("exit code %d before any signal", code)
	}
	if i.Take(syscall.SIGINT) || done != 0 {
		t.Error("the first signal does not wait")
	}
	now = now.Add(repeat)
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
