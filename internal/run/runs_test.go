package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/daemontest"
	"monopod/internal/program"
)

func TestAReservedPortIsGivenToNobodyElse(t *testing.T) {
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		port, held, err := reservePort(protocol, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		listen := func() error {
			if protocol == corev1.ProtocolUDP {
				c, err := net.ListenPacket("udp", address)
				if err == nil {
					err = c.Close()
				}
				return err
			}
			l, err := net.Listen("tcp", address)
			if err == nil {
				err = l.Close()
			}
			return err
		}
		if err := listen(); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s %s: %v", protocol, address, err)
		}
		if protocol == corev1.ProtocolTCP {
			if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
				_ = c.Close()
				t.Error("somebody answers on a port that is only reserved")
			}
		}
		if err := errors.Join(held.Close(), listen()); err != nil {
			t.Errorf("it is not free again: %v", err)
		}
	}
	if _, _, err := reservePort(corev1.ProtocolSCTP, "", 0); err == nil {
		t.Error("SCTP is reserved")
	}
}

func TestASignalThatComesBeforeTheCommandIsNotLost(t *testing.T) {
	i := &program.Interrupts{Stop: func() {}}
	p := &program.Program{Signals: i, Stdin: strings.NewReader(""), Stdout: &daemontest.SyncBuffer{}, Stderr: &daemontest.SyncBuffer{}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	i.Take(syscall.SIGTERM)
	if code, err := NewCommands(p).Command(ended, []string{"sleep", "1000"}, os.Environ()); code != 143 || err != nil {
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
	if code, err := NewCommands(p).Command(t.Context(), []string{"sleep", "1000"}, os.Environ()); code != 143 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	<-done
}
