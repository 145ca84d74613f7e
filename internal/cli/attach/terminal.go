package attach

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"monopod/internal/streams"
)

// terminal is the terminal of the user in raw mode: each key is sent to the remote terminal.
type terminal struct {
	fd    int
	state *term.State
	once  sync.Once
	// sizes receives the size initially and after each change.
	sizes   chan streams.Size
	changed chan os.Signal
}

// takeTerminal sets raw mode until restore is called, or a signal ends the program.
func (p Commands) takeTerminal() (*terminal, error) {
	in, ok := p.Stdin.(*os.File)
	if !ok {
		return nil, errors.New("the input is not a terminal")
	}
	t := &terminal{fd: int(in.Fd()), sizes: make(chan streams.Size, 1), changed: make(chan os.Signal, 1)}
	var err error
	if t.state, err = term.MakeRaw(t.fd); err != nil {
		return nil, err
	}
	p.Signals.AtEnd(t.restore)
	p.Signals.Also(syscall.SIGHUP, syscall.SIGQUIT)
	signal.Notify(t.changed, syscall.SIGWINCH)
	t.changed <- syscall.SIGWINCH // the first one
	go t.follow()
	return t, nil
}

// follow sends the latest size of the terminal, until restore.
func (t *terminal) follow() {
	for range t.changed {
		width, height, err := term.GetSize(t.fd)
		if err != nil {
			continue
		}
		select {
		case <-t.sizes: // nobody has taken it, and it is not so any more
		default:
		}
		t.sizes <- streams.Size{Width: uint16(width), Height: uint16(height)}
	}
}

// restore restores the mode of the terminal.
func (t *terminal) restore() {
	t.once.Do(func() {
		signal.Stop(t.changed)
		close(t.changed)
		_ = term.Restore(t.fd, t.state) // there is nobody to tell when it is gone
	})
}

// The detach keys, as in docker.
const (
	keyDetach1 = 0x10 // Ctrl-P
	keyDetach2 = 0x11 // Ctrl-Q
)

// errDetach ends the input after the detach keys.
var errDetach = errors.New("detached")

// detachable is an input that ends with the two detach keys.
type detachable struct {
	from io.Reader
	// held means that the first key was typed and not passed on yet.
	held  bool
	rest  []byte
	leave func()
}

// Read implements io.Reader.
func (d *detachable) Read(p []byte) (int, error) {
	if len(d.rest) > 0 {
		n := copy(p, d.rest)
		d.rest = d.rest[n:]
		return n, nil
	}
	buf := make([]byte, max(1, len(p)-1))
	n, err := d.from.Read(buf)
	out := make([]byte, 0, n+1)
	for _, c := range buf[:n] {
		if d.held && c == keyDetach2 {
			d.leave()
			return copy(p, out), errDetach
		}
		if d.held {
			out = append(out, keyDetach1)
		}
		if d.held = c == keyDetach1; !d.held {
			out = append(out, c)
		}
	}
	n = copy(p, out)
	d.rest = out[n:]
	return n, err
}
