package systemd_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"monopod/node/systemd"
)

// manager is a fake service manager; it returns the reports.
func manager(t *testing.T) (path string, told func() string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return path, func() string {
		b := make([]byte, 1<<12)
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

func TestTheServiceManagerIsToldAndNobodyElseKnowsOfIt(t *testing.T) {
	path, told := manager(t)
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "30000000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	n := systemd.FromEnvironment()
	if !n.Listens() || n.Watchdog != 30*time.Second {
		t.Errorf("%+v", n)
	}
	if v := os.Getenv("NOTIFY_SOCKET") + os.Getenv("WATCHDOG_USEC") + os.Getenv("WATCHDOG_PID"); v != "" {
		t.Errorf("children get %q", v)
	}
	if err := n.Tell("READY=1", "STATUS=two\nlines"); err != nil {
		t.Fatal(err)
	}
	if got := told(); got != "READY=1\nSTATUS=two lines" {
		t.Errorf("told %q", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if n.Tell("STOPPING=1") == nil {
		t.Error("nobody is there, and that is no error")
	}
}

func TestWithoutAServiceManagerNothingIsSent(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "1000000")
	t.Setenv("WATCHDOG_PID", "1") // it is another process that is watched
	n := systemd.FromEnvironment()
	if n.Listens() || n.Watchdog != 0 || n.Tell("READY=1") != nil {
		t.Errorf("%+v", n)
	}
	n = nil
	if n.Listens() || n.Tell("READY=1") != nil {
		t.Error("nil tells")
	}
}
