package attach

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/internal/program"
	"monopod/internal/streams"
)

// newTerminal opens both ends of a terminal of a size.
func newTerminal(t *testing.T, width, height uint16) (pty, tty *os.File) {
	t.Helper()
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pty.Close() })
	number, err := unix.IoctlGetInt(int(pty.Fd()), unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(int(pty.Fd()), unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	resize(t, pty, width, height)
	return pty, tty
}

func resize(t *testing.T, pty *os.File, width, height uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}); err != nil {
		t.Fatal(err)
	}
}

// TestATerminalIsRawUntilItIsGivenBack: each key goes to the other side, with the size of the window.
func TestATerminalIsRawUntilItIsGivenBack(t *testing.T) {
	t.Parallel()
	pty, tty := newTerminal(t, 90, 20)
	mode := func() unix.Termios {
		m, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return *m
	}
	before := mode()
	p := NewCommands(&program.Program{Stdin: tty, Stdout: io.Discard, Stderr: io.Discard})
	s, done, err := p.streams(&execOptions{stdin: true, tty: true})
	if err != nil {
		t.Fatal(err)
	}
	if raw := mode(); raw.Lflag&(unix.ECHO|unix.ICANON|unix.ISIG) != 0 {
		t.Errorf("it is not raw: %b", raw.Lflag)
	}
	if !s.TTY || s.Stderr != nil || s.Stdin == nil {
		t.Errorf("%+v", s)
	}
	if got := <-s.Resize; got != (streams.Size{Width: 90, Height: 20}) {
		t.Errorf("the first size is %v", got)
	}
	done()
	done() // which happens when it ends while a signal ends the program
	if after := mode(); after != before {
		t.Errorf("%+v, was %+v", after, before)
	}
	taken, err := p.takeTerminal()
	if err != nil {
		t.Fatal(err)
	}
	defer taken.restore()
	resize(t, pty, 100, 30)
	taken.changed <- syscall.SIGWINCH
	for got := range taken.sizes { // the one from before may be the first
		if got == (streams.Size{Width: 100, Height: 30}) {
			break
		}
	}
}

func TestOnlyATerminalIsTaken(t *testing.T) {
	t.Parallel()
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := NewCommands(&program.Program{Stdin: file})
	if _, _, err := p.streams(&execOptions{stdin: true, tty: true}); err == nil {
		t.Error("a file")
	}
	p.Stdin = strings.NewReader("")
	if _, _, err := p.streams(&execOptions{stdin: true, tty: true}); err == nil {
		t.Error("text")
	}
	p.Stdout, p.Stderr = io.Discard, io.Discard
	for _, c := range []struct {
		o                  execOptions
		stdin, stderr, tty bool
	}{
		{execOptions{}, false, true, false},
		{execOptions{stdin: true}, true, true, false},
		{execOptions{tty: true}, false, false, true}, // the process gets a terminal; nobody types
	} {
		s, done, err := p.streams(&c.o)
		if err != nil {
			t.Fatal(err)
		}
		done()
		if (s.Stdin != nil) != c.stdin || (s.Stderr != nil) != c.stderr || s.TTY != c.tty || s.Resize != nil {
			t.Errorf("%+v: %+v", c.o, s)
		}
	}
}
