package cgroup

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// fakeSystemd is a system bus with systemd's manager, whose jobs end when the test ends them.
type fakeSystemd struct {
	listener net.Listener
	// units are the units of jobs that have started.
	units   chan string
	serving sync.WaitGroup

	mu       sync.Mutex
	accepted int
	conns    map[net.Conn]bool
	jobs     map[string]dbus.ObjectPath
}

// newFakeSystemd sets the system bus of this process. At the end of the test it must have no connections.
func newFakeSystemd(t *testing.T) *fakeSystemd {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+socket)
	f := &fakeSystemd{listener: l, units: make(chan string, 8), conns: map[net.Conn]bool{}, jobs: map[string]dbus.ObjectPath{}}
	f.serving.Go(f.accept)
	t.Cleanup(func() {
		_ = l.Close()
		f.serving.Wait()
	})
	return f
}

func (f *fakeSystemd) accept() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.accepted++
		f.conns[c] = true
		f.mu.Unlock()
		f.serving.Go(func() {
			_ = f.serve(c) // it ends when the client closes
			_ = c.Close()
			f.mu.Lock()
			delete(f.conns, c)
			f.mu.Unlock()
		})
	}
}

// serve accepts all clients and answers.
func (f *fakeSystemd) serve(c net.Conn) error {
	r := bufio.NewReader(c)
	for begun := false; !begun; {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		answer := ""
		switch line = strings.Trim(line, "\x00\r\n"); {
		case line == "AUTH":
			answer = "REJECTED EXTERNAL"
		case strings.HasPrefix(line, "AUTH"):
			answer = "OK 0123456789abcdef0123456789abcdef"
		case line == "BEGIN":
			begun = true
			continue
		default:
			answer = "ERROR"
		}
		if _, err := fmt.Fprintf(c, "%s\r\n", answer); err != nil {
			return err
		}
	}
	for {
		m, err := dbus.DecodeMessage(r)
		if err != nil {
			return err
		}
		if err := f.answer(c, m); err != nil {
			return err
		}
	}
}

func (f *fakeSystemd) answer(c net.Conn, m *dbus.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	headers := map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(m.Serial())}
	switch m.Headers[dbus.FieldMember].Value() {
	case "Hello":
		return send(c, dbus.TypeMethodReply, headers, ":1.1")
	case "StartTransientUnit":
		unit, ok := m.Body[0].(string)
		if !ok {
			return errors.New("a unit without a name")
		}
		f.jobs[unit] = dbus.ObjectPath(fmt.Sprintf("/org/freedesktop/systemd1/job/%d", len(f.jobs)+1))
		if err := send(c, dbus.TypeMethodReply, headers, f.jobs[unit]); err != nil {
			return err
		}
		f.units <- unit
		return nil
	}
	return send(c, dbus.TypeMethodReply, headers)
}

func send(c net.Conn, kind dbus.Type, headers map[dbus.HeaderField]dbus.Variant, body ...any) error {
	if len(body) > 0 {
		headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	m := dbus.Message{Type: kind, Headers: headers, Body: body}
	return m.EncodeTo(c, binary.LittleEndian)
}

// wait returns the name of the next unit that is started.
func (f *fakeSystemd) wait(t *testing.T) string {
	t.Helper()
	select {
	case unit := <-f.units:
		return unit
	case <-time.After(time.Minute):
		t.Fatal("no unit is started")
		return ""
	}
}

// end ends the job of a unit and signals it.
func (f *fakeSystemd) end(t *testing.T, unit string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		headers := map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/systemd1")),
			dbus.FieldInterface: dbus.MakeVariant("org.freedesktop.systemd1.Manager"),
			dbus.FieldMember:    dbus.MakeVariant("JobRemoved"),
		}
		if err := send(c, dbus.TypeSignal, headers, uint32(1), f.jobs[unit], unit, "done"); err != nil {
			t.Error(err)
		}
	}
}

// connections returns the number of connections so far.
func (f *fakeSystemd) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted
}

// dropAll ends all connections.
func (f *fakeSystemd) dropAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Close()
	}
	clear(f.conns)
}

func TestSlicesThatStartTogetherDoNotWaitForEachOther(t *testing.T) {
	f := newFakeSystemd(t)
	s := &systemd{}
	defer s.Close()
	ended := make(chan error, 2)
	for _, unit := range []string{"monopodtest_a.slice", "monopodtest_b.slice"} {
		go func() { ended <- s.start(unit) }()
	}
	first, second := f.wait(t), f.wait(t) // both, before either has ended
	for _, unit := range []string{second, first} {
		f.end(t, unit)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestOneConnectionIsUsedUntilItBreaks(t *testing.T) {
	f := newFakeSystemd(t)
	s := &systemd{}
	defer s.Close()
	start := func(unit string) {
		t.Helper()
		ended := make(chan error, 1)
		go func() { ended <- s.start(unit) }()
		f.end(t, f.wait(t))
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	start("monopodtest_a.slice")
	once := f.connections()
	start("monopodtest_b.slice")
	if got := f.connections(); got != once {
		t.Errorf("after a second call there have been %d connections, after the first %d", got, once)
	}
	broken := s.conn
	f.dropAll()
	for deadline := time.Now().Add(time.Minute); broken.Connected(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody notices that the connection has ended")
		}
	}
	start("monopodtest_c.slice")
	if got := f.connections(); got != 2*once {
		t.Errorf("after a third call there have been %d connections, want %d", got, 2*once)
	}
}
