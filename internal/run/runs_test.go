package run

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"monopod/internal/daemontest"
	"monopod/internal/program"
)

func TestASignalThatComesBeforeTheCommandIsNotLost(t *testing.T) {
	i := &program.Interrupts{Stop: func() {}}
	p := Commands{Program: &program.Program{Signals: i, Stdin: strings.NewReader(""), Stdout: &daemontest.SyncBuffer{}, Stderr: &daemontest.SyncBuffer{}}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	i.Take(syscall.SIGTERM)
	if code, err := p.Command(ended, []string{"sleep", "1000"}, os.Environ()); code != 143 || err != nil {
		t.Errorf("after a signal: %d, %v", code, err)
	}
	// From then on they are the command's, also those that come before it is there.
	done := make(chan struct{})
	go func() {
		defer close(done)
		for deadline := time.Now().Add(daemontest.Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			i.Mu.Lock()
			to := i.To
			i.Mu.Unlock()
			if to != nil {
				i.Take(syscall.SIGTERM) // SIGINT may be ignored, or be that of a terminal
				return
			}
		}
	}()
	if code, err := p.Command(t.Context(), []string{"sleep", "1000"}, os.Environ()); code != 143 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	<-done
}
